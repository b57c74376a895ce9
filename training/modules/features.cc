#include "training/modules/features.h"

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

Tensor features_of(Pass& pass, int64_t width) {
  const std::span<const float> features = pass.batch->features;
  const int64_t samples = pass.batch->samples;
  if (std::ssize(features) != samples * width) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("the micro-batch has ", features.size(), " numbers for ", samples,
            " samples, but the model expects ", width, " per sample"),
        {.cause = "the model was created for samples of another size",
         .remedy = "use a model of the width of the data (images: height, width and channels)"});
  }
  const Tensor own = pass.arena.take(pass.dtype, samples, width);
  convert(tensor_at(static_cast<const void*>(features.data()), DType::f32, samples, width), own);
  return own;
}

Tensor tile_of_features(Pass& pass, const ImageShape& image, const ImageGrid& grid) {
  if (grid.ranks() == 1) return features_of(pass, image.size());
  const Tensor tile = pass.arena.take(pass.dtype, pass.batch->samples, grid.own(image).size());
  const ArenaScope scope(pass.arena);
  const Rectangle all{{0, image.height}, {0, image.width}};
  copy_shared(features_of(pass, image.size()), all, tile, grid.tile(image));
  return tile;
}

}  // namespace tutti::training
