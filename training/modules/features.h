// What the first unit of a model of numbers (images, measurements) begins with.
#pragma once

#include "training/core/pass.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

// The micro-batch's features in the pass's type, samples x `width`, from its arena. Throws
// Error(invalid_argument) where the data have another width.
Tensor features_of(Pass& pass, int64_t width);
// The same of images, of which each rank of a grid takes its tile.
Tensor tile_of_features(Pass& pass, const ImageShape& image, const ImageGrid& grid);

}  // namespace tutti::training
