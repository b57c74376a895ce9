// The fields of a configuration as options of a command.
#pragma once

#include <functional>
#include <string>

#include "base/command_line.h"
#include "base/schema.h"

namespace tutti::training {

// Told of an option that was given, in the order of the line: its value, as the field's type has
// it, and its name. The field outlives the command.
using TakeValue = std::function<void(const Field& field, Json value)>;
void add_flag(Command command, const Field& field, const std::string& meaning, TakeValue take);

// Those of all models; what is given goes into `model`, a configuration that may lack all else.
void add_model_flags(Command command, Json& model);
// Throws UsageError for a member that the model's kind does not have.
void refuse_members_of_other_models(const Json& model);

}  // namespace tutti::training
