// Options of a command for the settings of a configuration.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "training/setup/command_line.h"
#include "training/setup/options.h"

namespace tutti::training {

// Adds options whose values are stored in `said`, a partial configuration, in the order of the
// command line: the last one counts, but lists given in several options are concatenated. `said`
// must outlive the command.
void add_flags(Command command, Json& said,
               const std::function<bool(const std::string& key)>& wanted);  // of --lr and so on
void add_model_flags(Command command, Json& said);                          // --model and its own
void add_optimizer_flags(Command command, Json& said);
void add_set(Command command, Json& said);  // --set a.b=c

// Throws Error(invalid_argument) with the nearest name if there is no setting with this dotted
// name.
void check_is_setting(const std::string& key);
// Throws Error(invalid_argument), or UsageError for words, for a member of a model's or an
// optimizer's configuration that exists only in another kind. `where`: the file; empty: words.
void refuse_members_of_other_kinds(const Json& object, const std::string& where);
// Throws UsageError for given settings that have no effect beside the others. For a file (`where`),
// which may contain all settings, throws Error(invalid_argument) only for values other than the
// default.
void refuse_what_is_ignored(const Json& said, const RunOptions& options, const std::string& where);

}  // namespace tutti::training
