// Command-line options for the settings of a configuration, and checks of the settings that were
// given.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "training/setup/command_line.h"
#include "training/setup/options.h"

namespace tutti::training {

// Add options to a command. Each option stores its value in `given`, a partial configuration, which
// must outlive the command. If an option is repeated, the last value counts, but lists are
// concatenated. add_flags() adds options such as --lr, for all settings of a run for which
// wanted(key) is true.
void add_flags(Command command, Json& given,
               const std::function<bool(const std::string& key)>& wanted);
void add_model_flags(Command command, Json& given);  // for --model and the models' settings
void add_optimizer_flags(Command command, Json& given);
void add_set(Command command, Json& given);  // for --set a.b=c

// Throws Error(invalid_argument), suggesting the nearest name, if there is no setting with this
// dotted name.
void check_is_setting(const std::string& key);
// Throws if `object`, the configuration of a model or an optimizer, has a member that only other
// kinds have: Error(invalid_argument) that names the file `where`, or UsageError if `where` is
// empty.
void refuse_members_of_other_kinds(const Json& object, const std::string& where);
// Throws for given settings that have no effect together with the other settings: UsageError, or,
// if `where` names the file of the settings, Error(invalid_argument). A file may contain all
// settings, so default values there are accepted.
void refuse_what_is_ignored(const Json& given, const RunOptions& options, const std::string& where);

}  // namespace tutti::training
