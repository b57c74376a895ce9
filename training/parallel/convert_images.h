// Images of a micro-batch from one layout on the tensor ranks to another: what
// convert_layout.h is to rows and columns, where a rank may also have a tile of each image, or some
// of each image's channels.
//
//   from \ to      replicated   rows             channels         pixels
//   replicated     -            own images       own channels     own tiles
//   rows           all-gather   -                all-to-all       all-to-all
//   channels       all-gather   all-to-all       -                all-to-all
//   pixels         all-gather   all-to-all       all-to-all       -
//   partial        all-reduce   reduce-scatter   all-reduce, own  reduce-scatter
//                                                channels
//
// Tiles are strips of rows of pixels, one below the other (strips_of()).
#pragma once

#include "training/core/activation_layout.h"
#include "training/core/pass.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

// The tensor ranks as a grid of one column.
ImageGrid strips_of(const MeshPlace& place);

// `images`: samples x pixels x channels, contiguous; `whole`: the shape of one that is not cut. An
// image of one pixel is a row of columns. The layouts differ along the tensor axis only. Memory,
// bytes, blocking, passes without a mesh: as of convert_layout().
Tensor convert_images(Pass& pass, const MeshPlace& place, Tensor images, const ImageShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to);
// The same where nothing is summed.
ConstTensor convert_images(Pass& pass, const MeshPlace& place, ConstTensor images,
                           const ImageShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to);

}  // namespace tutti::training
