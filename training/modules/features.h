// Converts the numeric input of a model (images, measurements) to the pass's type.
#pragma once

#include "training/core/pass.h"
#include "training/modules/image_grid.h"

namespace tutti::training {

// Returns the micro-batch's features in the pass's type, samples x `width`, in memory from the
// pass's arena. Throws Error(invalid_argument) if the data have another width.
Tensor features_of(Pass& pass, int64_t width);
// Returns this rank's tiles of the micro-batch's images, in the format of features_of().
Tensor tile_of_features(Pass& pass, const ImageShape& image, const ImageGrid& grid);

}  // namespace tutti::training
