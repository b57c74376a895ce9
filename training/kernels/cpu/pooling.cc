#include "training/core/thread_pool.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/loops.h"

namespace tutti::training::cpu {
namespace {

kernels::Pooling geometry(const PoolingShape& shape, ConstTensor x, ConstTensor y) {
  const ImageShape output = shape.output();
  const WindowTile windows = shape.windows();
  require_shapes(x.cols == shape.input.size() && y.cols == output.size() && x.rows == y.rows &&
                     x.dtype == y.dtype && x.contiguous() && y.contiguous() &&
                     shape.window.dilation == 1,
                 "pooling");
  return {.samples = x.rows,
          .height = shape.input.height,
          .width = shape.input.width,
          .channels = shape.input.channels,
          .output_height = output.height,
          .output_width = output.width,
          .window_height = shape.window.height,
          .window_width = shape.window.width,
          .stride = shape.window.stride,
          .top = windows.top,
          .left = windows.left};
}

void check_places(const PoolingShape& shape, ConstTensor y, ConstTensor places) {
  require_shapes(places.dtype == DType::u8 && places.contiguous() && places.rows == y.rows &&
                     places.cols == y.cols && shape.window.height * shape.window.width <= 256,
                 "max pooling");
}

double share(const PoolingShape& shape) {
  return 1 / static_cast<double>(shape.window.height * shape.window.width);
}

// Calls body(geometry, first) for ranges of samples.
template <typename Body>
void by_samples(const PoolingShape& shape, ConstTensor x, ConstTensor y, Body&& body) {
  const kernels::Pooling all = geometry(shape, x, y);
  parallel_rows(x.rows, x.cols, [&](int64_t first, int64_t count) {
    kernels::Pooling part = all;
    part.samples = count;
    body(part, first);
  });
}

uint8_t* places_at(Tensor places, int64_t row) {
  return places.row_range(row, 1).values<uint8_t>().data();
}
const uint8_t* places_at(ConstTensor places, int64_t row) {
  return places.row_range(row, 1).values<uint8_t>().data();
}

}  // namespace

void max_pool(const PoolingShape& shape, ConstTensor x, Tensor y, Tensor places) {
  check_places(shape, y, places);
  const auto loop = kernels::loops(x.dtype).max_pool;
  by_samples(shape, x, y, [&](const kernels::Pooling& part, int64_t first) {
    loop(part, x.at(first, 0), y.at(first, 0), places_at(places, first));
  });
}

void max_pool_backward(const PoolingShape& shape, ConstTensor dy, ConstTensor places, Tensor dx) {
  check_places(shape, dy, places);
  const auto loop = kernels::loops(dx.dtype).max_pool_backward;
  by_samples(shape, dx, dy, [&](const kernels::Pooling& part, int64_t first) {
    loop(part, dy.at(first, 0), places_at(places, first), dx.at(first, 0));
  });
}

void average_pool(const PoolingShape& shape, ConstTensor x, Tensor y) {
  const auto loop = kernels::loops(x.dtype).average_pool;
  by_samples(shape, x, y, [&](const kernels::Pooling& part, int64_t first) {
    loop(part, x.at(first, 0), y.at(first, 0), share(shape));
  });
}

void average_pool_backward(const PoolingShape& shape, ConstTensor dy, Tensor dx) {
  const auto loop = kernels::loops(dx.dtype).average_pool_backward;
  by_samples(shape, dx, dy, [&](const kernels::Pooling& part, int64_t first) {
    loop(part, dy.at(first, 0), dx.at(first, 0), share(shape));
  });
}

}  // namespace tutti::training::cpu
