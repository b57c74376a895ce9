// SGD and AdamW, step for step as PyTorch does them, on flat arrays; and the learning-rate
// schedule.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training/parameters.h"

namespace tutti::training {

// Updates the values from the gradients. Every rank that holds the same values, gradients and state
// gets the same bits.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(Parameters& parameters, float learning_rate) = 0;
};

enum class DecayOn { matrices, all };  // biases and gains are usually left alone

struct SgdOptions {
  float momentum = 0.9f;
  float weight_decay = 0.0f;  // added to the gradient, as an L2 penalty
  bool nesterov = false;
  DecayOn decay_on = DecayOn::matrices;
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options = {}) : options_(options) {}
  void step(Parameters& parameters, float learning_rate) override;

 private:
  SgdOptions options_;
  std::vector<float> momentum_;  // empty before the first step
};

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;       // added to the root, not under it
  float weight_decay = 0.01f;  // decoupled: values shrink by learning_rate * weight_decay
  DecayOn decay_on = DecayOn::matrices;
};

// Loshchilov, Hutter: Decoupled weight decay regularization, ICLR 2019.
class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options = {}) : options_(options) {}
  void step(Parameters& parameters, float learning_rate) override;

 private:
  AdamWOptions options_;
  int64_t steps_ = 0;
  std::vector<float> first_moment_;
  std::vector<float> second_moment_;
};

// Linear from peak / warmup_steps up to `peak`, then a half cosine down to final_fraction * peak at
// the last step.
struct LearningRateSchedule {
  float peak = 1e-3f;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  float final_fraction = 0.0f;

  float at(int64_t step) const;  // step counts from 0
};

}  // namespace tutti::training
