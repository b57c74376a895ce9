#include "training/parallel/hooks/error_feedback.h"

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

void check_error_feedback(std::string_view what, DType gradients) {
  if (gradients == DType::f32 || gradients == DType::bf16) return;
  throw Error(
      ErrorCode::invalid_argument, cat(what, " cannot compress gradients in ", name(gradients)),
      {.cause = "the compression accumulates errors of the gradients, but their loss scale changes",
       .remedy = "train in f32 or bf16, or compress to f16 instead"});
}

BucketErrors::BucketErrors(const Layout& layout, const std::vector<ParameterSpec>& specs,
                           size_t bucket)
    : values_(static_cast<size_t>(layout.buckets[bucket].size)) {
  for (const int parameter : layout.buckets[bucket].parameters) {
    const auto index = static_cast<size_t>(parameter);
    parameters_.push_back({specs[index].name, layout.slots[index]});
  }
}

void BucketErrors::add_gradients(Tensor gradients, std::span<float> scratch) {
  convert(gradients, f32_row(scratch));
  add(f32_row(values_), f32_row(scratch), f32_row(values_));
}

void BucketErrors::append_states(const std::string& prefix, std::vector<HookState>& states) {
  for (const Named& parameter : parameters_) {
    const auto own = std::span(values_).subspan(static_cast<size_t>(parameter.slot.offset),
                                                static_cast<size_t>(parameter.slot.count));
    states.push_back({cat(prefix, '.', parameter.name), f32_row(own), RowKind::summed});
  }
}

Tensor f32_row(std::span<float> values) {
  return tensor_at(values.data(), DType::f32, 1, std::ssize(values));
}

}  // namespace tutti::training
