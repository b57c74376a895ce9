#include "training/modules/pooling.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

Pooling::Pooling(PoolingKind kind, const ImageShape& input, const Window& window)
    : kind_(kind), shape_{input, window} {
  static_cast<void>(shape_.output());  // throws for what does not fit
  if (kind == PoolingKind::max && window.height * window.width > 256) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("max pooling by windows of ", window.height, " x ", window.width, " is too large"),
        {.remedy = "take windows of at most 256 pixels"});
  }
}

Pooling Pooling::global_average(const ImageShape& input) {
  return {PoolingKind::average, input, {.height = input.height, .width = input.width}};
}

Tensor Pooling::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const Tensor result = pass.arena.take(input.dtype, input.rows, output().size());
  if (kind_ == PoolingKind::max) {
    saved.places = pass.arena.take(DType::u8, input.rows, output().size());
    max_pool(shape_, input, result, saved.places);
  } else {
    average_pool(shape_, input, result);
  }
  return result;
}

Tensor Pooling::backward(Pass& pass, ConstTensor output_gradient, const Saved& saved) const {
  const Tensor input_gradient =
      pass.arena.take(output_gradient.dtype, output_gradient.rows, shape_.input.size());
  if (kind_ == PoolingKind::max) {
    max_pool_backward(shape_, output_gradient, saved.places, input_gradient);
  } else {
    average_pool_backward(shape_, output_gradient, input_gradient);
  }
  return input_gradient;
}

}  // namespace tutti::training
