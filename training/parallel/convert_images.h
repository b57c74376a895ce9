// Conversion of a micro-batch's images from one layout on the tensor ranks to another: the
// counterpart of convert_layout.h for images, of which a rank may also have tiles, or some of the
// channels.
//
//   from \ to      replicated   rows             channels         pixels
//   replicated     -            own images       own channels     own tiles
//   rows           all-gather   -                all-to-all       all-to-all
//   channels       all-gather   all-to-all       -                all-to-all
//   pixels         all-gather   all-to-all       all-to-all       -
//   partial        all-reduce   reduce-scatter   all-reduce, own  reduce-scatter
//                                                channels
//
// Tiles are strips of rows of pixels (strips_of()).
#pragma once

#include "training/core/activation_layout.h"
#include "training/core/pass.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

// The tensor ranks as a grid of one column.
ImageGrid strips_of(const MeshPlace& place);

// `images`: samples x pixels x channels, contiguous; `whole`: the shape of an undivided image. An
// image of one pixel is a row of columns. The layouts may differ along the tensor axis only.
// Memory, counted bytes, blocking, and passes without a mesh are as in convert_layout().
Tensor convert_images(Pass& pass, const MeshPlace& place, Tensor images, const ImageShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to);
// Likewise for conversions without a sum.
ConstTensor convert_images(Pass& pass, const MeshPlace& place, ConstTensor images,
                           const ImageShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to);

}  // namespace tutti::training
