#include <algorithm>
#include <compare>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/kernels/cpu/convolution_f64.h"
#include "training/kernels/cpu/kernels.h"
#include "training/kernels/cpu/onednn.h"

namespace tutti::training::cpu {
namespace {

using Descriptor = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;

constexpr int64_t kFloatBytes = sizeof(float);

enum class Kind { forward, backward_input, backward_weight };

// Key of a cached primitive.
struct ConvolutionKey {
  Kind kind = Kind::forward;
  int64_t samples = 0;
  int64_t height = 0, width = 0, inputs = 0;
  int64_t output_height = 0, output_width = 0, outputs = 0;
  int64_t window_height = 0, window_width = 0, stride = 0, dilation = 1;
  int64_t top = 0, left = 0, groups = 1;
  bool bias = false;
  DType dtype = DType::f32;
  auto operator<=>(const ConvolutionKey&) const =
      default;  // NOLINT(modernize-use-nullptr): false alarm
};

ConvolutionKey make_key(Kind kind, const ConvolutionShape& shape, int64_t samples, DType dtype,
                        bool bias) {
  const ImageShape output = shape.output();
  const WindowTile windows = shape.windows();
  return {.kind = kind,
          .samples = samples,
          .height = shape.input.height,
          .width = shape.input.width,
          .inputs = shape.input.channels,
          .output_height = output.height,
          .output_width = output.width,
          .outputs = output.channels,
          .window_height = shape.window.height,
          .window_width = shape.window.width,
          .stride = shape.window.stride,
          .dilation = shape.window.dilation,
          .top = windows.top,
          .left = windows.left,
          .groups = shape.groups,
          .bias = bias,
          .dtype = dtype};
}

std::string describe(const ConvolutionKey& key) {
  return cat("a convolution of ", key.samples, " images of ", key.height, " x ", key.width, " x ",
             key.inputs, " to ", key.outputs, " channels by windows of ", key.window_height, " x ",
             key.window_width, ", stride ", key.stride, ", dilation ", key.dilation, ", padding ",
             key.top, " above and ", key.left, " on the left, ", key.groups, " groups, in ",
             name(key.dtype));
}

// A convolution with weights in oneDNN's preferred order, and the reordering to it (or, for weight
// gradients, from it). This is at least four times as fast as with weights in plain order.
struct Convolution {
  onednn::Primitive convolution;
  onednn::Primitive reorder;  // weights from DNNL_ARG_FROM to DNNL_ARG_TO
  int64_t weight_bytes;       // bytes of the reordered weights
};

// Returns the shape of weights, in which groups are a separate dimension.
Dims weight_shape(const ConvolutionKey& key) {
  Dims shape{key.outputs / key.groups, key.inputs / key.groups, key.window_height,
             key.window_width};
  if (key.groups > 1) shape.insert(shape.begin(), key.groups);
  return shape;
}

Descriptor plain_weights(const ConvolutionKey& key, dnnl::memory::data_type type) {
  return {weight_shape(key), type, key.groups > 1 ? Tag::goihw : Tag::oihw};
}

onednn::Primitive make_reorder(const Descriptor& from, const Descriptor& to) {
  return {dnnl::reorder({onednn::engine(), from, onednn::engine(), to}),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

// Returns true if an implementation of oneDNN 2.6.3 is faulty for this shape: it writes out of
// bounds, or sums uninitialized memory. tests/training/kernels/convolution_test.cc found these
// faults.
bool is_unsound(const ConvolutionKey& key, std::string_view implementation) {
  constexpr int64_t kBlock = 16;  // number of channels
  const int64_t inputs = key.inputs / key.groups, outputs = key.outputs / key.groups;
  const bool fills_blocks = inputs % kBlock == 0 && outputs % kBlock == 0;
  const bool is_1x1 = implementation.find("_1x1:") != std::string_view::npos;
  const bool is_jit_bf16 = key.dtype == DType::bf16 && implementation.starts_with("jit");
  switch (key.kind) {
    case Kind::forward:  // fails for a stride larger than the window
      return implementation.starts_with("brgconv:avx512_core_amx") &&
             key.window_height < key.stride;
    case Kind::backward_input:  // fails in jit_bf16_1x1
      return is_jit_bf16 && is_1x1 && !fills_blocks;
    case Kind::backward_weight:
      break;
  }
  // The 1x1 implementations gather pixels by stride in a workspace. Its addresses assume whole
  // blocks of channels, 8 (jit_1x1:avx2) or 16 (jit_1x1:avx512_core, jit_bf16_1x1:avx512_core), but
  // it is allocated only for the actual channels. oneDNN 3.12 still has the bug
  // (https://github.com/uxlfoundation/oneDNN/issues/6035).
  if (is_1x1 && key.stride > 1 && inputs < kBlock) return true;
  // jit_bf16 and jit:avx512_core_amx_bf16 fail for images narrower than the stride, dilated
  // windows, and partial blocks of channels.
  return is_jit_bf16 && (key.width < key.stride || key.dilation > 1 || !fills_blocks);
}

// Returns the first implementation that is not faulty.
template <typename Found>
Found sound(const ConvolutionKey& key, Found found) {
  while (is_unsound(key, found.impl_info_str())) {
    if (!found.next_impl()) {
      throw Error(ErrorCode::unsupported,
                  cat("oneDNN has no correct implementation of ", describe(key)),
                  {.remedy = "use multiples of 16 channels, a smaller stride, or dilation 1"});
    }
  }
  return found;
}

Convolution make_convolution(const ConvolutionKey& key) {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const auto type = onednn::data_type(key.dtype);
  const Descriptor x({key.samples, key.inputs, key.height, key.width}, type, Tag::nhwc);
  const Descriptor y({key.samples, key.outputs, key.output_height, key.output_width}, type,
                     Tag::nhwc);
  const Dims shape = weight_shape(key);
  const Descriptor weight(shape, type, Tag::any);
  const Descriptor bias = key.bias ? Descriptor({key.outputs}, type, Tag::a) : Descriptor();
  const Dims strides{key.stride, key.stride};
  const Dims dilation{key.dilation - 1, key.dilation - 1};  // oneDNN counts the skipped pixels
  const Dims padding{key.top, key.left};
  // Padding on the right and below: the number of pixels outside the image that windows read, which
  // may be less than the window's padding.
  const Dims padding_end{(key.output_height - 1) * key.stride +
                             (key.window_height - 1) * key.dilation + 1 - key.height - key.top,
                         (key.output_width - 1) * key.stride +
                             (key.window_width - 1) * key.dilation + 1 - key.width - key.left};
  auto forward = onednn::primitive_descriptor<dnnl::convolution_forward>(
      {}, dnnl::prop_kind::forward_training, kDirect, x, weight, bias, y, strides, dilation,
      padding, padding_end);
  if (key.kind == Kind::forward) {
    forward = sound(key, forward);
    const Descriptor best = forward.weights_desc();
    return {
        {dnnl::convolution_forward(forward),
         {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, best}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, y}}},
        make_reorder(plain_weights(key, type), best),
        static_cast<int64_t>(best.get_size())};
  }
  if (key.kind == Kind::backward_input) {
    const auto backward =
        sound(key, onednn::backward_descriptor<dnnl::convolution_backward_data>(
                       forward, kDirect, x, weight, y, strides, dilation, padding, padding_end));
    const Descriptor best = backward.weights_desc();
    return {{dnnl::convolution_backward_data(backward),
             {{DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_WEIGHTS, best}, {DNNL_ARG_DIFF_DST, y}}},
            make_reorder(plain_weights(key, type), best),
            static_cast<int64_t>(best.get_size())};
  }
  const auto f32 = dnnl::memory::data_type::f32;
  const Descriptor gradient(shape, f32, Tag::any);
  const auto backward =
      sound(key, onednn::backward_descriptor<dnnl::convolution_backward_weights>(
                     forward, kDirect, x, gradient, y, strides, dilation, padding, padding_end));
  const Descriptor best = backward.diff_weights_desc();
  return {{dnnl::convolution_backward_weights(backward),
           {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_WEIGHTS, best}, {DNNL_ARG_DIFF_DST, y}}},
          make_reorder(best, plain_weights(key, f32)),
          static_cast<int64_t>(best.get_size())};
}

// Returns the number of parts into which samples are divided. The parts are equal, so that all use
// one primitive and one order of weights, and their number depends on the shape alone.
int64_t parts_of(const ConvolutionShape& shape, int64_t samples) {
  constexpr int64_t kMostParts = 8;
  constexpr int64_t kSmall = 1 << 23;  // number of multiplications that take some 0.1 ms
  const int64_t multiplications = samples * shape.output().size() * shape.weights();
  int64_t parts = multiplications < kSmall ? 1 : kMostParts;
  while (samples % parts != 0) parts /= 2;
  return parts;
}

int64_t weight_bytes(const ConvolutionKey& key) {
  int64_t bytes = 0;
  onednn::run(key, make_convolution, describe,
              [&](Convolution& made) { bytes = made.weight_bytes; });
  return bytes;
}

// Returns the reordered weights, in memory from the arena.
Tensor ordered_weights(const ConvolutionKey& key, ConstTensor weight, Arena& arena) {
  Tensor ordered;
  onednn::run(key, make_convolution, describe, [&](Convolution& made) {
    ordered = arena.take(DType::u8, 1, made.weight_bytes);
    made.reorder.run({{DNNL_ARG_FROM, weight.data}, {DNNL_ARG_TO, ordered.data}});
  });
  return ordered;
}

void check(const ConvolutionShape& shape, ConstTensor x, ConstTensor y, int64_t weight_rows,
           int64_t weight_cols) {
  require_shapes(x.cols == shape.input.size() && y.cols == shape.output().size() &&
                     x.rows == y.rows && x.dtype == y.dtype && x.contiguous() && y.contiguous() &&
                     weight_rows == shape.outputs && weight_cols == shape.weights(),
                 "convolution");
}

Tensor take_f32(ConstTensor like, Arena& arena) {
  return arena.take(DType::f32, like.rows, like.cols);
}

ConstTensor to_f32(ConstTensor source, Arena& arena) {
  if (source.empty()) return source;
  const Tensor copy = take_f32(source, arena);
  cpu::convert(source, copy);
  return copy;
}

}  // namespace

void convolution(const ConvolutionShape& shape, ConstTensor x, ConstTensor weight, ConstTensor bias,
                 Tensor y, Arena& arena) {
  check(shape, x, y, weight.rows, weight.cols);
  if (x.rows == 0) return;
  if (x.dtype == DType::f64) return convolution_f64(shape, x, weight, bias, y, arena);
  const ArenaScope scope(arena);
  if (!onednn::computes_in(x.dtype)) {
    const Tensor wide = take_f32(y, arena);
    cpu::convolution(shape, to_f32(x, arena), to_f32(weight, arena), to_f32(bias, arena), wide,
                     arena);
    return cpu::convert(wide, y);
  }
  const int64_t parts = parts_of(shape, x.rows);
  const int64_t samples = x.rows / parts;
  const ConvolutionKey key = make_key(Kind::forward, shape, samples, x.dtype, !bias.empty());
  const Tensor ordered = ordered_weights(key, weight, arena);
  parallel_for(parts, [&](int64_t part) {
    onednn::run(key, make_convolution, describe, [&](Convolution& made) {
      made.convolution.run({{DNNL_ARG_SRC, x.at(part * samples, 0)},
                            {DNNL_ARG_WEIGHTS, ordered.data},
                            {DNNL_ARG_BIAS, bias.data},
                            {DNNL_ARG_DST, y.at(part * samples, 0)}});
    });
  });
}

void convolution_backward_input(const ConvolutionShape& shape, ConstTensor dy, ConstTensor weight,
                                Tensor dx, Arena& arena) {
  check(shape, dx, dy, weight.rows, weight.cols);
  if (dy.rows == 0) return;
  if (dy.dtype == DType::f64) return convolution_backward_input_f64(shape, dy, weight, dx, arena);
  const ArenaScope scope(arena);
  if (!onednn::computes_in(dy.dtype)) {
    const Tensor wide = take_f32(dx, arena);
    cpu::convolution_backward_input(shape, to_f32(dy, arena), to_f32(weight, arena), wide, arena);
    return cpu::convert(wide, dx);
  }
  const int64_t parts = parts_of(shape, dy.rows);
  const int64_t samples = dy.rows / parts;
  const ConvolutionKey key = make_key(Kind::backward_input, shape, samples, dy.dtype, false);
  const Tensor ordered = ordered_weights(key, weight, arena);
  parallel_for(parts, [&](int64_t part) {
    onednn::run(key, make_convolution, describe, [&](Convolution& made) {
      made.convolution.run({{DNNL_ARG_DIFF_DST, dy.at(part * samples, 0)},
                            {DNNL_ARG_WEIGHTS, ordered.data},
                            {DNNL_ARG_DIFF_SRC, dx.at(part * samples, 0)}});
    });
  });
}

void convolution_backward_weight(const ConvolutionShape& shape, ConstTensor x, ConstTensor dy,
                                 Tensor weight_gradient, Arena& arena) {
  check(shape, x, dy, weight_gradient.rows, weight_gradient.cols);
  if (x.rows == 0) return;
  if (x.dtype == DType::f64)
    return convolution_backward_weight_f64(shape, x, dy, weight_gradient, arena);
  const ArenaScope scope(arena);
  if (!onednn::computes_in(x.dtype)) {
    return cpu::convolution_backward_weight(shape, to_f32(x, arena), to_f32(dy, arena),
                                            weight_gradient, arena);
  }
  // Each part has its own sums, which together must not exceed the images' memory.
  const auto images = static_cast<int64_t>(x.bytes() + dy.bytes());
  int64_t parts = parts_of(shape, x.rows);
  while (parts > 1 && parts * weight_gradient.size() * kFloatBytes > images) parts /= 2;
  const int64_t samples = x.rows / parts;
  const ConvolutionKey key = make_key(Kind::backward_weight, shape, samples, x.dtype, false);
  const int64_t elements = weight_bytes(key) / kFloatBytes;
  const Tensor ordered = arena.take(DType::f32, parts, elements);
  parallel_for(parts, [&](int64_t part) {
    onednn::run(key, make_convolution, describe, [&](Convolution& made) {
      made.convolution.run({{DNNL_ARG_SRC, x.at(part * samples, 0)},
                            {DNNL_ARG_DIFF_DST, dy.at(part * samples, 0)},
                            {DNNL_ARG_DIFF_WEIGHTS, ordered.at(part, 0)}});
    });
  });
  for (int64_t part = 1; part < parts; ++part) {
    cpu::add(ordered.row_range(0, 1), ordered.row_range(part, 1), ordered.row_range(0, 1));
  }
  const Tensor sums = take_f32(weight_gradient, arena);
  onednn::run(key, make_convolution, describe, [&](Convolution& made) {
    made.reorder.run({{DNNL_ARG_FROM, ordered.data}, {DNNL_ARG_TO, sums.data}});
  });
  cpu::add_values(sums, weight_gradient);
}

}  // namespace tutti::training::cpu
