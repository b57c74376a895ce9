#include "training/modules/pooling.h"

#include <cstddef>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

const Window& checked(PoolingKind kind, const Window& window) {
  if (kind == PoolingKind::max && window.height * window.width > 256) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("max pooling by windows of ", window.height, " x ", window.width, " is too large"),
        {.remedy = "use windows of at most 256 pixels"});
  }
  if (window.dilation != 1) {
    throw Error(ErrorCode::invalid_argument, "pooling by dilated windows is not supported",
                {.remedy = "use dilation 1"});
  }
  return window;
}

}  // namespace

Pooling::Pooling(PoolingKind kind, const ImageShape& input, const Window& window,
                 const Spatial& spatial)
    : kind_(kind),
      height_(output_shape(input, checked(kind, window), input.channels).height),
      width_(output_shape(input, window, input.channels).width),
      spatial_(spatial),
      windows_(spatial.grid, input, window, output_shape(input, window, input.channels)) {}

PoolingShape Pooling::shape() const {
  return {.input = windows_.needed.shape(windows_.input.channels),
          .window = windows_.window,
          .tile = WindowPart{windows_.needed, windows_.outputs}.tile(windows_.window)};
}

ConstTensor Pooling::gathered(Pass& pass, ConstTensor own) const {
  const auto exchange = start_halo(pass, spatial_, windows_, own);
  if (windows_.needed == windows_.own) {
    if (exchange != nullptr) exchange->wait();
    return own;
  }
  const int64_t channels = windows_.input.channels;
  const Tensor all = pass.arena.take(own.dtype, own.rows, windows_.needed.pixels() * channels);
  copy_shared(own, windows_.own, all, windows_.needed);
  if (exchange == nullptr) return all;
  exchange->wait();
  for (size_t i = 0; i < windows_.received.size(); ++i) {
    copy_shared(exchange->received(i), windows_.received[i].where, all, windows_.needed);
  }
  return all;
}

Tensor Pooling::scattered(Pass& pass, ConstTensor needed) const {
  const int64_t channels = windows_.input.channels;
  const Tensor own = pass.arena.take(needed.dtype, needed.rows, windows_.own.pixels() * channels);
  const auto exchange = begin_halo_gradients(pass, spatial_, windows_, needed.dtype, needed.rows);
  if (exchange != nullptr) {
    for (size_t i = 0; i < windows_.received.size(); ++i) {
      copy_shared(needed, windows_.needed, exchange->sent(i), windows_.received[i].where);
    }
    exchange->start();
  }
  if (!(intersection(windows_.own, windows_.needed) == windows_.own)) zero(own);
  copy_shared(needed, windows_.needed, own, windows_.own);
  if (exchange == nullptr) return own;
  exchange->wait();
  for (size_t i = 0; i < windows_.sent.size(); ++i) {
    add_shared(exchange->received(i), windows_.sent[i].where, own, windows_.own);
  }
  return own;
}

Tensor Pooling::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  const Tensor result = pass.arena.take(input.dtype, input.rows, output_size());
  if (kind_ == PoolingKind::max) {
    saved.places = pass.arena.take(DType::u8, input.rows, output_size());
  }
  const ArenaScope scope(pass.arena);
  const ConstTensor pixels = gathered(pass, input);
  if (windows_.outputs.empty()) return result;
  if (kind_ == PoolingKind::max) {
    max_pool(shape(), pixels, result, saved.places);
  } else {
    average_pool(shape(), pixels, result);
  }
  return result;
}

Tensor Pooling::backward(Pass& pass, ConstTensor output_gradient, const Saved& saved) const {
  const PoolingShape reached = shape();
  const Tensor pixels = pass.arena.take(output_gradient.dtype, output_gradient.rows,
                                        windows_.needed.pixels() * windows_.input.channels);
  if (windows_.outputs.empty()) {
    zero(pixels);
  } else if (kind_ == PoolingKind::max) {
    max_pool_backward(reached, output_gradient, saved.places, pixels);
  } else {
    average_pool_backward(reached, output_gradient, pixels);
  }
  const bool is_all = windows_.needed == windows_.own && windows_.sent.empty();
  return is_all ? pixels : scattered(pass, pixels);
}

// One window has the size of the whole image, of which this rank has a part.
GlobalAverage::GlobalAverage(const ImageShape& input, const ImageGrid& grid)
    : shape_{.input = grid.own(input),
             .window = {.height = input.height, .width = input.width},
             .tile = WindowTile{.top = grid.tile(input).rows.first,
                                .left = grid.tile(input).columns.first,
                                .height = 1,
                                .width = 1}} {}

Tensor GlobalAverage::forward(Pass& pass, ConstTensor input) const {
  const Tensor result = pass.arena.take(input.dtype, input.rows, shape_.input.channels);
  average_pool(shape_, input, result);
  return result;
}

Tensor GlobalAverage::backward(Pass& pass, ConstTensor output_gradient) const {
  const Tensor result =
      pass.arena.take(output_gradient.dtype, output_gradient.rows, shape_.input.size());
  average_pool_backward(shape_, output_gradient, result);
  return result;
}

}  // namespace tutti::training
