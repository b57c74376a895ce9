// Division of a network's layers over the tensor-parallel ranks, chosen for each layer (Gholami,
// Azad, Jin, Keutzer, Buluc: Integrated model, batch, and domain parallelism in training neural
// networks, SPAA 2018).
//
//   b  batch   each rank has all weights and computes some of the samples; the weights' gradients
//              are summed over the ranks
//   m  model   each rank has some of the weights and computes some of the outputs of all samples
//   d  domain  convolutions only: each rank has all weights and computes a strip of every image,
//              with the edges of neighbouring strips; the weights' gradients are summed over ranks
//
// A mix is written with one letter per layer, the first layer first: "d,b,m,m".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "training/core/activation_layout.h"

namespace tutti::training {

enum class LayerSplit : uint8_t { batch, model, domain };
inline constexpr int kLayerSplits = 3;
inline constexpr std::array<LayerSplit, kLayerSplits> kAllLayerSplits = {
    LayerSplit::batch, LayerSplit::model, LayerSplit::domain};

using Mix = std::vector<LayerSplit>;

// input_layout() returns the layout of a layer's inputs. output_layout() returns the layout of a
// convolution's outputs, which differs from it only if the convolution is model-parallel.
constexpr ActivationLayout input_layout(LayerSplit split) {
  if (split == LayerSplit::model) return kReplicated;
  return split == LayerSplit::batch ? kTensorRows : kTensorPixels;
}
constexpr ActivationLayout output_layout(LayerSplit split) {
  return split == LayerSplit::model ? kTensorChannels : input_layout(split);
}

// Parses letters separated by commas, blanks or line breaks; # begins a comment that ends with the
// line. `where` names the source in errors: a file, or an option. Throws Error(invalid_argument)
// for other words, and if there are no letters or more than kMostLayers (registry.h).
Mix parse_mix(std::string_view text, const std::string& where);
// Returns true if all words of the text are single characters, so that it is a mix and not the name
// of a file.
bool is_mix(std::string_view text);
std::string to_text(const Mix& mix);
// Returns all mixes of `layers` layers. The first `convolutions` layers are convolutions. For
// measurements and tests.
std::vector<Mix> all_mixes(size_t layers, size_t convolutions = 0);

}  // namespace tutti::training
