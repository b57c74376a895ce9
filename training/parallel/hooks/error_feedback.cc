#include "training/parallel/hooks/error_feedback.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

void check_error_feedback(std::string_view what, DType gradients) {
  if (gradients == DType::f32 || gradients == DType::bf16) return;
  throw Error(ErrorCode::invalid_argument,
              cat(what, " cannot compress gradients in ", name(gradients)),
              {.cause = "it remembers parts of them, and their loss scale changes",
               .remedy = "train in f32 or bf16, or compress to f16 instead"});
}

}  // namespace tutti::training
