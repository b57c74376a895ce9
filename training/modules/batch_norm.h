// Batch normalization of each channel (Ioffe, Szegedy 2015), over the micro-batch, or over the
// micro-batches of all ranks (SyncBN).
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias, then ReLU if wanted
//
// In training, mean and variance are the batch's, in which a micro-batch of weight 0 does not
// count; otherwise the running ones:
//   running = 0.9 running + 0.1 batch's         (variance: of samples, divided by n - 1)
// These are buffers: state of the model that no gradient changes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "training/core/model.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

// Adds up over all ranks, in place; all get the same bits. A collective call: with SyncBN, every
// rank runs forward, and backward, equally often. Called on the thread that runs the pass.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  virtual void sum(std::span<double> values) = 0;
};

struct BatchNormOptions {
  bool relu = false;
  bool zero_gain = false;  // the gain starts at 0 instead of 1
  double epsilon = 1e-5;
  double momentum = 0.1;                 // the batch's share in the running statistics
  StatisticsReducer* reducer = nullptr;  // none: each rank for itself. Outlives the module.
};

// Unlike other modules it has state, the buffers: it stays where it is.
class BatchNorm {
 public:
  struct Saved {
    ConstTensor input;
    Tensor output;
    Tensor statistics;         // 2 x channels: mean, 1 / deviation
    double count = 0;          // pixels that they come from; 0: they are the running ones
    std::vector<double> sums;  // 2 * channels: this rank's gradients of bias and weight
  };

  // Parameters NAME.weight and NAME.bias, buffers NAME.running_mean and NAME.running_var.
  BatchNorm(ParameterTable& table, const std::string& name, int64_t channels,
            const BatchNormOptions& options = {});
  BatchNorm(const BatchNorm&) = delete;
  BatchNorm& operator=(const BatchNorm&) = delete;

  std::vector<NamedBuffer> buffers();

  // Rows of any number of pixels, each of `channels` values.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved);
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Both; the weights now or later, as the pass says. `saved` stays where it is until then.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void take_statistics(Pass& pass, ConstTensor pixels, Saved& saved);
  void update_running(std::span<const double> mean, std::span<const double> variance, double count);
  void set_statistics(Tensor statistics, std::span<const double> mean,
                      std::span<const double> variance) const;
  // The output, if the ReLU has to be undone.
  ConstTensor cut_output(const Saved& saved) const;

  std::string name_;
  int64_t channels_;
  BatchNormOptions options_;
  const Parameter* gain_;
  const Parameter* bias_;
  std::vector<float> running_mean_;
  std::vector<float> running_variance_;
};

}  // namespace tutti::training
