// Parts of convolutions, and of transposed ones, over images that are divided over a grid of ranks
// (image_grid.h): the convolution's linear map, its adjoint, and the gradient of its weights. On a
// grid of one rank the functions just call the kernels.
//
// Communication of halos overlaps with computation on the rank's own pixels:
//
//   apply     send halos of x              |  outputs in the interior   |  outputs at the edges
//   adjoint   compute halo gradients, send |  the tile's own gradients  |  add received ones
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "training/core/pass.h"
#include "training/kernels/convolution.h"
#include "training/modules/halo_messages.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

// The grid that divides a layer's images, and the messages that exchange halos; null for one rank.
struct Spatial {
  ImageGrid grid = {};
  const HaloMessages* halos = nullptr;
};

// Returns messages for these pieces of a micro-batch's images, in the order of `pieces`.
std::vector<HaloMessages::Message> messages_of(std::span<const HaloPiece> pieces, int64_t samples,
                                               int64_t channels);
// Starts to send the parts of `own` that other ranks need as halo, and to receive this rank's halo.
// Returns null if nothing is sent or received.
std::unique_ptr<HaloMessages::Exchange> start_halo(Pass& pass, const Spatial& spatial,
                                                   const TiledWindows& windows, ConstTensor own);
// Begins an exchange for the gradients of the received pixels, for backward. The caller fills and
// starts it.
std::unique_ptr<HaloMessages::Exchange> begin_halo_gradients(Pass& pass, const Spatial& spatial,
                                                             const TiledWindows& windows,
                                                             DType type, int64_t samples);

class TiledConvolution {
 public:
  // Computes tiles and halos. `whole`: shape for whole images. Throws Error(invalid_argument) for
  // windows that do not fit.
  TiledConvolution(const ConvolutionShape& whole, const Spatial& spatial);

  const ConvolutionShape& whole() const { return whole_; }
  const TiledWindows& windows() const { return windows_; }
  // Return the number of elements, or pixels, of this rank's tiles.
  int64_t input_size() const { return windows_.own.shape(whole_.input.channels).size(); }
  int64_t output_size() const { return windows_.outputs.shape(whole_.outputs).size(); }
  int64_t output_pixels() const { return windows_.outputs.pixels(); }

  // Returns the outputs of windows over x. `halo` gets the pixels of x that other ranks sent, which
  // the weights' gradient needs. The result and `halo` are allocated from the arena.
  Tensor apply(Pass& pass, ConstTensor x, ConstTensor weight, ConstTensor bias,
               std::vector<Tensor>& halo) const;
  // Returns the gradient of x, given dy, the gradient of y. Calls `meanwhile` while the halo's
  // gradients are in flight.
  Tensor adjoint(Pass& pass, ConstTensor dy, ConstTensor weight,
                 const std::function<void()>& meanwhile) const;
  // Adds this rank's term of the sum over the grid to `gradient`.
  void add_weight_gradient(Pass& pass, ConstTensor x, std::span<const Tensor> halo, ConstTensor dy,
                           Tensor gradient) const;

 private:
  ConvolutionShape shape_of(const WindowPart& part) const;
  void apply_part(Pass& pass, const WindowPart& part, ConstTensor x, ConstTensor weight,
                  ConstTensor bias, Tensor y) const;
  void apply_edge(Pass& pass, const Rectangle& edge, ConstTensor x, std::span<const Tensor> halo,
                  ConstTensor weight, ConstTensor bias, Tensor y) const;
  void input_gradient(Pass& pass, const Rectangle& where, ConstTensor dy, ConstTensor weight,
                      Tensor dx) const;
  void add_part_of_weight_gradient(Pass& pass, const Rectangle& where, ConstTensor x,
                                   ConstTensor dy, Tensor gradient) const;

  ConvolutionShape whole_;
  Spatial spatial_;
  TiledWindows windows_;
};

}  // namespace tutti::training
