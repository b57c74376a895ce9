// Input of models of numbers (images, measurements).
#pragma once

#include "training/core/pass.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

// The micro-batch's features in the pass's type, samples x `width`, from its arena. Throws
// Error(invalid_argument) if the data have another width.
Tensor features_of(Pass& pass, int64_t width);
// Likewise for images, of which each rank of a grid gets its tile.
Tensor tile_of_features(Pass& pass, const ImageShape& image, const ImageGrid& grid);

}  // namespace tutti::training
