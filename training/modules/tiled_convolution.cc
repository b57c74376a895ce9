#include "training/modules/tiled_convolution.h"

#include <cstddef>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

using Exchange = HaloMessages::Exchange;

ConvolutionShape checked(const ConvolutionShape& shape) {
  output_shape(shape.input, shape.window, shape.outputs);  // throws for windows that do not fit
  if (shape.groups >= 1 && shape.input.channels % shape.groups == 0 &&
      shape.outputs % shape.groups == 0) {
    return shape;
  }
  throw Error(ErrorCode::invalid_argument,
              cat(shape.groups, " groups do not divide ", shape.input.channels, " channels and ",
                  shape.outputs, " outputs evenly"),
              {.remedy = "use a number of groups that divides both"});
}

Tensor take(Pass& pass, DType type, int64_t samples, const Rectangle& where, int64_t channels) {
  return pass.arena.take(type, samples, where.pixels() * channels);
}

// Returns the pixels `part` of images that have the pixels `all`: a view if these are equal,
// otherwise a copy in the arena.
ConstTensor cut_out(Pass& pass, ConstTensor images, const Rectangle& all, const Rectangle& part) {
  if (part == all || all.empty()) return images;
  const Tensor own = take(pass, images.dtype, images.rows, part, images.cols / all.pixels());
  copy_shared(images, all, own, part);
  return own;
}

// Returns the parts of `all` around `inside`: above, below, left and right; or `all` if `inside` is
// empty.
//
//   +-----------+
//   |     0     |
//   +--+-----+--+
//   | 2|     | 3|
//   +--+-----+--+
//   |     1     |
//   +-----------+
std::vector<Rectangle> frame(const Rectangle& all, const Rectangle& inside) {
  if (inside.empty()) return {all};
  const auto before = [](const Share& a, const Share& i) {
    return Share{a.first, i.first - a.first};
  };
  const auto behind = [](const Share& a, const Share& i) {
    return Share{i.first + i.count, a.first + a.count - i.first - i.count};
  };
  return {Rectangle{before(all.rows, inside.rows), all.columns},
          Rectangle{behind(all.rows, inside.rows), all.columns},
          Rectangle{inside.rows, before(all.columns, inside.columns)},
          Rectangle{inside.rows, behind(all.columns, inside.columns)}};
}

}  // namespace

std::vector<HaloMessages::Message> messages_of(std::span<const HaloPiece> pieces, int64_t samples,
                                               int64_t channels) {
  std::vector<HaloMessages::Message> messages;
  for (const HaloPiece& piece : pieces) {
    messages.push_back({piece.rank, samples, piece.where.pixels() * channels});
  }
  return messages;
}

std::unique_ptr<Exchange> start_halo(Pass& pass, const Spatial& spatial,
                                     const TiledWindows& windows, ConstTensor own) {
  if (windows.sent.empty() && windows.received.empty()) return nullptr;
  const int64_t channels = windows.input.channels;
  auto exchange =
      spatial.halos->begin(pass, own.dtype, messages_of(windows.sent, own.rows, channels),
                           messages_of(windows.received, own.rows, channels));
  for (size_t i = 0; i < windows.sent.size(); ++i) {
    copy_shared(own, windows.own, exchange->sent(i), windows.sent[i].where);
  }
  exchange->start();
  return exchange;
}

std::unique_ptr<Exchange> begin_halo_gradients(Pass& pass, const Spatial& spatial,
                                               const TiledWindows& windows, DType type,
                                               int64_t samples) {
  if (windows.sent.empty() && windows.received.empty()) return nullptr;
  const int64_t channels = windows.input.channels;
  return spatial.halos->begin(pass, type, messages_of(windows.received, samples, channels),
                              messages_of(windows.sent, samples, channels));
}

TiledConvolution::TiledConvolution(const ConvolutionShape& whole, const Spatial& spatial)
    : whole_(checked(whole)),
      spatial_(spatial),
      windows_(spatial.grid, whole.input, whole.window, whole.output()) {}

ConvolutionShape TiledConvolution::shape_of(const WindowPart& part) const {
  ConvolutionShape shape = whole_;
  shape.input = part.input.shape(whole_.input.channels);
  shape.tile = part.tile(whole_.window);
  return shape;
}

// Computes some outputs; `x` and `y` are tensors of the rank's tiles.
void TiledConvolution::apply_part(Pass& pass, const WindowPart& part, ConstTensor x,
                                  ConstTensor weight, ConstTensor bias, Tensor y) const {
  const ArenaScope scope(pass.arena);
  const ConstTensor inputs = cut_out(pass, x, windows_.own, part.input);
  if (part.outputs == windows_.outputs) {
    return convolution(shape_of(part), inputs, weight, bias, y, pass.arena);
  }
  const Tensor outputs = take(pass, y.dtype, y.rows, part.outputs, whole_.outputs);
  convolution(shape_of(part), inputs, weight, bias, outputs, pass.arena);
  copy_shared(outputs, part.outputs, y, windows_.outputs);
}

void TiledConvolution::apply_edge(Pass& pass, const Rectangle& edge, ConstTensor x,
                                  std::span<const Tensor> halo, ConstTensor weight,
                                  ConstTensor bias, Tensor y) const {
  if (edge.empty()) return;
  const ArenaScope scope(pass.arena);
  const WindowPart part{windows_.reached(edge), edge};
  const Tensor inputs = take(pass, x.dtype, x.rows, part.input, whole_.input.channels);
  copy_shared(x, windows_.own, inputs, part.input);
  for (size_t i = 0; i < halo.size(); ++i) {
    copy_shared(halo[i], windows_.received[i].where, inputs, part.input);
  }
  const Tensor outputs = take(pass, y.dtype, y.rows, edge, whole_.outputs);
  convolution(shape_of(part), inputs, weight, bias, outputs, pass.arena);
  copy_shared(outputs, edge, y, windows_.outputs);
}

Tensor TiledConvolution::apply(Pass& pass, ConstTensor x, ConstTensor weight, ConstTensor bias,
                               std::vector<Tensor>& halo) const {
  const Tensor y = pass.arena.take(x.dtype, x.rows, output_size());
  halo.clear();
  for (const HaloPiece& piece : windows_.received) {
    halo.push_back(take(pass, x.dtype, x.rows, piece.where, whole_.input.channels));
  }
  const auto exchange = start_halo(pass, spatial_, windows_, x);
  const Rectangle interior = windows_.interior();
  // This also computes outputs at the tile's edges, which are computed again below.
  if (!interior.empty()) apply_part(pass, part_on(windows_, windows_.own), x, weight, bias, y);
  if (exchange == nullptr) return y;
  exchange->wait();
  for (size_t i = 0; i < halo.size(); ++i) copy(exchange->received(i), halo[i]);
  for (const Rectangle& edge : frame(windows_.outputs, interior)) {
    apply_edge(pass, edge, x, halo, weight, bias, y);
  }
  return y;
}

// Computes the gradient of the pixels in `where` from this rank's outputs. Writes all of dx.
void TiledConvolution::input_gradient(Pass& pass, const Rectangle& where, ConstTensor dy,
                                      ConstTensor weight, Tensor dx) const {
  const WindowPart part = part_on(windows_, where);
  if (part.empty()) return zero(dx);
  const ArenaScope scope(pass.arena);
  const ConstTensor outputs = cut_out(pass, dy, windows_.outputs, part.outputs);
  if (part.input == where) {
    return convolution_backward_input(shape_of(part), outputs, weight, dx, pass.arena);
  }
  zero(dx);
  const Tensor reached = take(pass, dx.dtype, dx.rows, part.input, whole_.input.channels);
  convolution_backward_input(shape_of(part), outputs, weight, reached, pass.arena);
  copy_shared(reached, part.input, dx, where);
}

Tensor TiledConvolution::adjoint(Pass& pass, ConstTensor dy, ConstTensor weight,
                                 const std::function<void()>& meanwhile) const {
  const Tensor dx = pass.arena.take(dy.dtype, dy.rows, input_size());
  const auto exchange = begin_halo_gradients(pass, spatial_, windows_, dy.dtype, dy.rows);
  if (exchange != nullptr) {
    for (size_t i = 0; i < windows_.received.size(); ++i) {
      input_gradient(pass, windows_.received[i].where, dy, weight, exchange->sent(i));
    }
    exchange->start();
  }
  input_gradient(pass, windows_.own, dy, weight, dx);
  meanwhile();
  if (exchange == nullptr) return dx;
  exchange->wait();
  for (size_t i = 0; i < windows_.sent.size(); ++i) {
    add_shared(exchange->received(i), windows_.sent[i].where, dx, windows_.own);
  }
  return dx;
}

// Adds the gradient of the weights from the pixels in `where`, which `x` has.
void TiledConvolution::add_part_of_weight_gradient(Pass& pass, const Rectangle& where,
                                                   ConstTensor x, ConstTensor dy,
                                                   Tensor gradient) const {
  const WindowPart part = part_on(windows_, where);
  if (part.empty()) return;
  const ArenaScope scope(pass.arena);
  convolution_backward_weight(shape_of(part), cut_out(pass, x, where, part.input),
                              cut_out(pass, dy, windows_.outputs, part.outputs), gradient,
                              pass.arena);
}

void TiledConvolution::add_weight_gradient(Pass& pass, ConstTensor x, std::span<const Tensor> halo,
                                           ConstTensor dy, Tensor gradient) const {
  add_part_of_weight_gradient(pass, windows_.own, x, dy, gradient);
  for (size_t i = 0; i < halo.size(); ++i) {
    add_part_of_weight_gradient(pass, windows_.received[i].where, halo[i], dy, gradient);
  }
}

}  // namespace tutti::training
