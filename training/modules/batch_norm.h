// Batch normalization of each channel (Ioffe, Szegedy 2015), over the micro-batch, or over the
// micro-batches of all ranks (SyncBN).
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias, then optionally ReLU
//
// In training, mean and variance are those of the batch, from which micro-batches of weight 0 are
// excluded; otherwise the running ones:
//   running = 0.9 running + 0.1 batch's         (variance: of samples, divided by n - 1)
// The running statistics are buffers: state of the model without gradients.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "training/core/model.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

// Sums over all ranks, in place; all get the same bits. Collective: with SyncBN, every rank must
// run forward, and backward, the same number of times. Called on the thread that runs the pass.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  virtual void sum(std::span<double> values) = 0;
};

struct BatchNormOptions {
  bool relu = false;
  bool zero_gain = false;  // the gain starts at 0 instead of 1
  double epsilon = 1e-5;
  double momentum = 0.1;                 // weight of the batch in the running statistics
  StatisticsReducer* reducer = nullptr;  // null: each rank by itself. Must outlive the module.
};

// Unlike other modules it has state, the buffers, so it cannot be copied or moved.
class BatchNorm {
 public:
  struct Saved {
    ConstTensor input;
    Tensor output;
    Tensor statistics;         // 2 x channels: mean, 1 / deviation
    double count = 0;          // pixels that they come from; 0: running statistics
    std::vector<double> sums;  // 2 * channels: this rank's gradients of bias and weight
  };

  // Parameters NAME.weight and NAME.bias, buffers NAME.running_mean and NAME.running_var.
  BatchNorm(ParameterTable& table, const std::string& name, int64_t channels,
            const BatchNormOptions& options = {});
  BatchNorm(const BatchNorm&) = delete;
  BatchNorm& operator=(const BatchNorm&) = delete;

  std::vector<NamedBuffer> buffers();

  // Rows have any number of pixels, each of `channels` values.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved);
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Both; the weights' gradients may be deferred by the pass. `saved` must stay in place until
  // then.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void take_statistics(Pass& pass, ConstTensor pixels, Saved& saved);
  void update_running(std::span<const double> mean, std::span<const double> variance, double count);
  void set_statistics(Tensor statistics, std::span<const double> mean,
                      std::span<const double> variance) const;
  // The output, if backward needs it for the ReLU.
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
