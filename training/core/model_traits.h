// Defaults of a kind of model, which a run's settings override.
#pragma once

#include <cstdint>

namespace tutti::training {

// Contents of a sample.
enum class Inputs {
  last_tokens,       // `context` tokens, and the next token
  windows,           // `context` tokens, and the next token after each of them
  images,            // channels x height x width, and its class
  images_of_pixels,  // channels x height x width, and the class of each pixel
};

inline bool are_images(Inputs inputs) {
  return inputs == Inputs::images || inputs == Inputs::images_of_pixels;
}

// Optimizers (optimizers/registry.h) derive their own defaults from these.
struct ModelTraits {
  Inputs inputs = Inputs::windows;
  uint64_t batch = 32;  // samples
  uint64_t micro_batch = 32;
  double adam_rate = 1e-3;     // learning rates: Adam and its variants,
  double adam_beta2 = 0.99;    // decay of squared gradients: Adam and its variants
  double sgd_rate = 0.1;       // and SGD
  double weight_decay = 0.01;  // decoupled
  double clip = 0;             // 0: none
  bool mixes_layers = false;   // tensor parallelism is chosen per layer (models/mix.h)
};

}  // namespace tutti::training
