// What suits a kind of model, where a run says nothing else.
#pragma once

#include <cstdint>

namespace tutti::training {

// What a sample is.
enum class Inputs {
  last_tokens,       // `context` tokens, and the one that follows
  windows,           // `context` tokens, and the one that follows each of them
  images,            // channels x height x width, and its class
  images_of_pixels,  // channels x height x width, and the class of each pixel
};

inline bool are_images(Inputs inputs) {
  return inputs == Inputs::images || inputs == Inputs::images_of_pixels;
}

// Optimizers (optimizers/registry.h) make their own defaults of it.
struct ModelTraits {
  Inputs inputs = Inputs::windows;
  uint64_t batch = 32;  // samples
  uint64_t micro_batch = 32;
  double adam_rate = 1e-3;     // learning rates of Adam's kind,
  double adam_beta2 = 0.99;    // of Adam's kind; forgets within some hundred steps
  double sgd_rate = 0.1;       // and of plain descent
  double weight_decay = 0.01;  // decoupled
  double clip = 0;             // 0: none
  bool mixes_layers = false;   // each layer is divided over tensor ranks by itself (models/mix.h)
};

}  // namespace tutti::training
