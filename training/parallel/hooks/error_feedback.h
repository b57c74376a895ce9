// Error feedback: the part of the gradients that a step does not send is added to the next step's.
#pragma once

#include <string_view>

#include "base/dtype.h"

namespace tutti::training {

// Throws Error(invalid_argument) for gradients in f16: their loss scale changes from step to step,
// so errors of one step cannot be added to the next. `what`: the compression, for the message.
void check_error_feedback(std::string_view what, DType gradients);

}  // namespace tutti::training
