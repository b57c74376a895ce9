// A model is a list of units. A unit is gathered (ZeRO-3), checkpointed and assigned to a pipeline
// stage as a whole. Each unit passes one tensor of rows x width to the next; a row is a sample, or
// a position of a sample.
//
//   batch -> [unit 0] -> tensor -> [unit 1] -> ... -> [last unit] -> loss
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/core/activation_layout.h"
#include "training/core/expert_load.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training {

// Shape of the tensor that a unit passes to the next: the number of rows per sample, counted over
// all ranks, the number of columns, and the layout on the ranks. Rows are in the order of the
// micro-batch's samples.
struct OutputShape {
  int64_t rows = 1;
  int64_t cols = 0;
  ActivationLayout layout = {};

  // Returns the number of rows (or columns) of a micro-batch's tensor on the rank at `place`;
  // `batch` is that rank's part of the micro-batch.
  int64_t rows_at(const MeshPlace& place, const MicroBatch& batch) const {
    return layout.rows_at(place, batch.rows(rows));
  }
  int64_t cols_at(const MeshPlace& place) const { return layout.columns_at(place, cols); }
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;  // Returns the unit's name, such as "h.3".
  virtual OutputShape output_shape() const = 0;
  // Computes and returns the unit's output. The first unit reads pass.batch and ignores `input`;
  // the last one sets pass.loss and returns its logits. Any unit may add losses of its own
  // (pass.add_loss).
  virtual Tensor forward(Pass& pass, ConstTensor input) = 0;
  // Takes dLoss/dOutput of the last forward in this pass's slot and returns dLoss/dInput (the first
  // unit: an empty tensor). The last unit ignores `output_gradient` and may overwrite its logits.
  // Other units must not change their outputs, because these are checked for non-finite values.
  // Parameter gradients are added in pass.finish(), now or later, and only if the micro-batch's
  // weight is not 0.
  virtual Tensor backward(Pass& pass, ConstTensor output_gradient) = 0;
  // Returns true if backward reads neither parameter values nor large activations (an embedding's
  // backward, for example). The unit is then neither recomputed nor gathered for backward.
  virtual bool backward_needs_nothing() const { return false; }
  // Returns the names of the losses that forward adds to pass.losses. Losses of the same name are
  // summed over units.
  virtual std::vector<std::string> losses() const { return {}; }
};

// State other than parameters that training changes, such as running statistics.
struct NamedBuffer {
  std::string name;
  std::span<float> values;  // memory that the model owns
  int unit = 0;             // index of the unit whose forward changes the buffer
};

class Model {
 public:
  virtual ~Model() = default;

  ParameterTable& parameters() { return parameters_; }
  const ParameterTable& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Returns the buffers, which checkpoints include. The addresses of their values must not change.
  virtual std::vector<NamedBuffer> buffers() { return {}; }
  // Returns the floating-point operations of forward and backward for one sample, without
  // recomputation (matrix products and attention; Narayanan et al. 2021, appendix). The default
  // assumes that each matrix is used once.
  virtual double flops_per_sample() const;
  // Returns the configuration from which a registry (models/registry.h) rebuilds the model:
  // {"kind": "gpt2", "layers": 4, ...}, with all defaults filled in. Checkpoints contain it. The
  // default, for models without a registry, lists the units' names and the number of parameters.
  virtual Json configuration() const;
  // Returns the number of targets per sample: the context length for a language model that predicts
  // at each position, the number of outputs for a regression, otherwise 1.
  virtual int64_t targets_per_sample() const { return 1; }
  // Returns the largest number of elements of logits, or of their gradients, that this rank holds
  // at once for a micro-batch. The default is the size of the last unit's output. `split`: true if
  // backward_weight is deferred.
  virtual int64_t logits_at_once(const MicroBatch& batch, bool /*split*/) const {
    const OutputShape shape = units_.back()->output_shape();
    return shape.rows_at(parameters_.mesh(), batch) * shape.cols_at(parameters_.mesh());
  }
  // Returns the bytes that units keep for messages to other ranks, outside of the passes' arenas.
  virtual int64_t message_bytes(const MicroBatch& /*batch*/, DType /*activations*/) const {
    return 0;
  }
  // Returns true if the context axis may divide the tokens of a sample.
  virtual bool takes_parts_of_samples() const { return false; }
  // Returns the number of tokens to which a token attends; 0 if the model has no sliding window.
  virtual int64_t attention_window() const { return 0; }
  // Returns true if the model's images may be cut over the spatial axis.
  virtual bool takes_tiles() const { return false; }
  // Returns the number of slices of the computations that tensor-parallel ranks share (slices.h) in
  // deterministic mode; otherwise 1.
  virtual int slices() const { return 1; }
  // Returns the object in which units count the tokens of their experts; null if the model has no
  // experts.
  virtual ExpertLoad* expert_load() { return nullptr; }
  // Returns the number of counted targets of a micro-batch. The step's loss is the mean over the
  // counted targets.
  virtual int64_t targets_in(const MicroBatch& batch) const {
    if (batch.targets.empty()) return batch.rows(targets_per_sample());
    return std::ranges::count_if(batch.targets, [](int32_t target) { return target >= 0; });
  }

 protected:
  // Creates the part of the model that the rank at place `mesh` has.
  explicit Model(const MeshPlace& mesh = {}) : parameters_(mesh) {}

  // Adds a unit of type `Made`, whose constructor takes (ParameterTable&, arguments...). Units are
  // added in forward order.
  template <typename Made, typename... Arguments>
  void add_unit(Arguments&&... arguments) {
    parameters_.begin_unit(static_cast<int>(units_.size()));
    units_.push_back(std::make_unique<Made>(parameters_, std::forward<Arguments>(arguments)...));
  }

  ParameterTable parameters_;
  std::vector<std::unique_ptr<Unit>> units_;
};

// Returns a model's configuration as one line of text: gpt2 layers=4 heads=4.
std::string in_words(const Json& configuration);

}  // namespace tutti::training
