// Converts a micro-batch's images from one layout on the tensor-parallel ranks to another. It does
// for images what convert_layout.h does for rows and columns; a rank may also have tiles of images,
// or some of the channels.
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

// Returns the tensor-parallel ranks as a grid of one column.
ImageGrid strips_of(const MeshPlace& place);

// Returns `images`, samples x pixels x channels and contiguous, converted from layout `from` to
// `to`. `whole`: the shape of an undivided image. A row of a matrix counts as an image of one pixel
// whose channels are the columns. The layouts may differ along the tensor axis only. Memory,
// counted bytes and blocking are as in convert_layout(). Without a mesh, other ranks' data are
// treated as 0.
Tensor convert_images(Pass& pass, const MeshPlace& place, Tensor images, const ImageShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to);
// Overload for conversions without a sum.
ConstTensor convert_images(Pass& pass, const MeshPlace& place, ConstTensor images,
                           const ImageShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to);

}  // namespace tutti::training
