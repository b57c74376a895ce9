#include "training/setup/random_batch.h"

#include <cstddef>

#include "training/core/random.h"
#include "training/models/registry.h"

namespace tutti::training {

Batch random_batch(const Json& model, int64_t samples, int64_t targets_per_sample) {
  const auto size = [&](const char* name) { return model.at(name).get<int64_t>(); };
  const auto count = [&](int64_t each) { return static_cast<size_t>(samples * each); };
  const auto number = [](size_t i, int64_t bound) {
    const uint64_t bits = random_bits(1, 0, i);
    return static_cast<int32_t>(scale_below(bits, static_cast<uint64_t>(bound)));
  };
  const bool has_images = are_images(kind_of(model).traits.inputs);
  const int64_t kinds = size(has_images ? "classes" : "vocabulary");
  Batch batch{.samples = samples};
  batch.targets.resize(count(targets_per_sample));
  for (size_t i = 0; i < batch.targets.size(); ++i) batch.targets[i] = number(i, kinds);
  if (has_images) {
    batch.features.resize(count(size("channels") * size("height") * size("width")));
    for (size_t i = 0; i < batch.features.size(); ++i) {
      batch.features[i] = static_cast<float>(number(i, 256)) / 255.0f;
    }
  } else {
    batch.tokens.resize(count(size("context")));
    for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = number(i, kinds);
  }
  return batch;
}

}  // namespace tutti::training
