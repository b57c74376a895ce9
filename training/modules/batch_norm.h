// Batch normalization of each channel (Ioffe, Szegedy 2015), over the micro-batch, or over the
// micro-batches of all ranks (SyncBN).
//
//   y = (x - mean) / sqrt(variance + epsilon) * weight + bias, then optionally ReLU
//
// In training, mean and variance are computed over the batch, without micro-batches of weight 0.
// Outside of training, or if all micro-batches have weight 0, the running mean and variance are
// used:
//   running = 0.9 running + 0.1 (statistic of the batch)    (variance: divided by n - 1)
//
// The running statistics are buffers: state of the model without gradients.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "training/core/model.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

// Sums numbers over ranks in place; all ranks get the same bits. Collective: with SyncBN, all ranks
// must run forward equally often, and backward equally often. Called on the thread that runs the
// pass.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  virtual void sum(std::span<double> values) = 0;
};

struct BatchNormOptions {
  bool relu = false;
  bool zero_gain = false;  // true: the gain starts at 0 instead of 1
  double epsilon = 1e-5;
  double momentum = 0.1;  // weight of the batch in the running statistics
  // Sums statistics over ranks, and must outlive the module. Null: each rank computes them
  // separately.
  StatisticsReducer* reducer = nullptr;
};

// The module. Unlike other modules it has state, the buffers, so it cannot be copied or moved.
class BatchNorm {
 public:
  struct Saved {
    ConstTensor input;
    Tensor output;
    Tensor statistics;         // 2 x channels: mean, 1 / deviation
    double count = 0;          // number of pixels in the statistics; 0: uses running statistics
    std::vector<double> sums;  // this rank's gradients of bias and weight: 2 * channels
  };

  // Adds parameters NAME.weight and NAME.bias, and buffers NAME.running_mean and NAME.running_var.
  BatchNorm(ParameterTable& table, const std::string& name, int64_t channels,
            const BatchNormOptions& options = {});
  BatchNorm(const BatchNorm&) = delete;
  BatchNorm& operator=(const BatchNorm&) = delete;

  std::vector<NamedBuffer> buffers();

  // Computes the output. Rows have any number of pixels, each of `channels` values.
  Tensor forward(Pass& pass, ConstTensor input, Saved& saved);
  Tensor backward_input(Pass& pass, ConstTensor output_gradient, Saved& saved) const;
  void backward_weight(Pass& pass, const Saved& saved) const;
  // Returns the input's gradient and computes the weights' gradients, which the pass may defer.
  // `saved` must keep its address until they are computed.
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void take_statistics(Pass& pass, ConstTensor pixels, Saved& saved);
  void update_running(std::span<const double> mean, std::span<const double> variance, double count);
  void set_statistics(Tensor statistics, std::span<const double> mean,
                      std::span<const double> variance) const;
  // Returns the output if backward needs it for the ReLU, otherwise an empty tensor.
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
