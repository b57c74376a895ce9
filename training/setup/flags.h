// The settings of a configuration as options of a command.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "training/setup/command_line.h"
#include "training/setup/options.h"

namespace tutti::training {

// What is given, in the order of the line, goes into `said`, a configuration that may lack all
// else: the last one counts, but lists that are given in several options have the values of all.
// `said` outlives the command.
void add_flags(Command command, Json& said,
               const std::function<bool(const std::string& key)>& wanted);  // of --lr and so on
void add_model_flags(Command command, Json& said);                          // --model and its own
void add_optimizer_flags(Command command, Json& said);
void add_set(Command command, Json& said);  // --set a.b=c

// Throws Error(invalid_argument) that tells the nearest one, where there is no such name with dots.
void check_is_setting(const std::string& key);
// Throws Error(invalid_argument), of words UsageError, for a member of a model's or an optimizer's
// configuration that another kind has, but not its own. `where`: the file; empty: words.
void refuse_members_of_other_kinds(const Json& object, const std::string& where);
// Throws UsageError for what was said though the others leave nothing for it to say. Of a file
// (`where`), which may say everything: Error(invalid_argument), for what is not as it is anyhow.
void refuse_what_is_ignored(const Json& said, const RunOptions& options, const std::string& where);

}  // namespace tutti::training
