// Defaults of a kind of model, which a run's settings override.
#pragma once

#include <cstdint>

namespace tutti::training {

// Contents of a sample.
enum class Inputs {
  last_tokens,       // `context` tokens; the target is the next token
  windows,           // `context` tokens; the target of each token is the next token
  images,            // channels x height x width numbers; the target is the image's class
  images_of_pixels,  // channels x height x width numbers; the targets are the classes of all pixels
};

inline bool are_images(Inputs inputs) {
  return inputs == Inputs::images || inputs == Inputs::images_of_pixels;
}

// Properties and defaults of a kind of model. Optimizers (optimizers/registry.h) derive their own
// defaults from them.
struct ModelTraits {
  Inputs inputs = Inputs::windows;
  uint64_t batch = 32;  // samples per step
  uint64_t micro_batch = 32;
  double adam_rate = 1e-3;     // learning rate of Adam and its variants
  double adam_beta2 = 0.99;    // decay of the mean of squared gradients: Adam and its variants
  double sgd_rate = 0.1;       // learning rate of SGD
  double weight_decay = 0.01;  // decoupled weight decay
  double clip = 0;             // maximum norm of the gradient; 0: not clipped
  bool mixes_layers = false;   // true if tensor parallelism is chosen per layer (models/mix.h)
};

}  // namespace tutti::training
