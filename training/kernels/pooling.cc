#include "training/kernels/pooling.h"

#include "training/kernels/loops.h"

namespace tutti::training {
namespace {

kernels::Pooling geometry(const PoolingShape& shape, ConstTensor x, ConstTensor y) {
  const ImageShape output = shape.output();
  require_shapes(x.cols == shape.input.size() && y.cols == output.size() && x.rows == y.rows &&
                     x.dtype == y.dtype && x.contiguous() && y.contiguous(),
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
          .padding = shape.window.padding};
}

void check_places(const PoolingShape& shape, ConstTensor y, ConstTensor places) {
  require_shapes(places.dtype == DType::u8 && places.contiguous() && places.rows == y.rows &&
                     places.cols == y.cols && shape.window.height * shape.window.width <= 256,
                 "max pooling");
}

double share(const PoolingShape& shape) {
  return 1 / static_cast<double>(shape.window.height * shape.window.width);
}

}  // namespace

void max_pool(const PoolingShape& shape, ConstTensor x, Tensor y, Tensor places) {
  check_places(shape, y, places);
  kernels::loops(x.dtype).max_pool(geometry(shape, x, y), x.data, y.data,
                                   places.values<uint8_t>().data());
}

void max_pool_backward(const PoolingShape& shape, ConstTensor dy, ConstTensor places, Tensor dx) {
  check_places(shape, dy, places);
  kernels::loops(dx.dtype).max_pool_backward(geometry(shape, dx, dy), dy.data,
                                             places.values<uint8_t>().data(), dx.data);
}

void average_pool(const PoolingShape& shape, ConstTensor x, Tensor y) {
  kernels::loops(x.dtype).average_pool(geometry(shape, x, y), x.data, y.data, share(shape));
}

void average_pool_backward(const PoolingShape& shape, ConstTensor dy, Tensor dx) {
  kernels::loops(dx.dtype).average_pool_backward(geometry(shape, dx, dy), dy.data, dx.data,
                                                 share(shape));
}

}  // namespace tutti::training
