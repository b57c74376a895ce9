// A model is a list of units: what is gathered (ZeRO-3), checkpointed and placed on a pipeline
// stage as a whole. Between units goes one tensor: rows (samples, or samples x positions) x width.
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

// The shape of the tensor that a unit hands to the next one: rows of each sample, counted over all
// ranks, and the layout on the ranks of the rows of a micro-batch's samples, one after the other.
struct OutputShape {
  int64_t rows = 1;
  int64_t cols = 0;
  ActivationLayout layout = {};

  // That the rank at `place` has of a micro-batch, of which `batch` is the part there.
  int64_t rows_at(const MeshPlace& place, const MicroBatch& batch) const {
    return layout.rows_at(place, batch.rows(rows));
  }
  int64_t cols_at(const MeshPlace& place) const { return layout.columns_at(place, cols); }
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;  // "h.3"
  virtual OutputShape output_shape() const = 0;
  // The first unit takes pass.batch and leaves `input` alone; the last one sets pass.loss and
  // returns its logits. Any may add losses of its own (pass.add_loss).
  virtual Tensor forward(Pass& pass, ConstTensor input) = 0;
  // Takes dLoss/dOutput of this slot's last forward, returns dLoss/dInput (the first unit: an empty
  // tensor). The last unit leaves `output_gradient` alone, and may overwrite its logits; the others
  // leave their outputs as they are: they are looked at for what is not finite. Gradients of
  // parameters are added to in pass.finish(), which knows when, and whether the micro-batch counts.
  virtual Tensor backward(Pass& pass, ConstTensor output_gradient) = 0;
  // Backward reads neither the parameters' values nor activations worth mentioning (a look-up):
  // nothing is recomputed or gathered for it.
  virtual bool backward_needs_nothing() const { return false; }
  // The names of what forward adds to pass.losses. Units that have one of the same name add up.
  virtual std::vector<std::string> losses() const { return {}; }
};

// State that training changes and gradients do not: running statistics.
struct NamedBuffer {
  std::string name;
  std::span<float> values;  // the model's memory
  int unit = 0;             // whose forward changes it
};

class Model {
 public:
  virtual ~Model() = default;

  ParameterTable& parameters() { return parameters_; }
  const ParameterTable& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Part of checkpoints; the addresses stay.
  virtual std::vector<NamedBuffer> buffers() { return {}; }
  // Floating-point operations of forward and backward for one sample, recomputation not counted
  // (matrix products and attention; Narayanan et al. 2021, appendix). As it is here: each matrix is
  // used once.
  virtual double flops_per_sample() const;
  // From which a registry (models/registry.h) makes it again: {"kind": "gpt2", "layers": 4, ...},
  // with all defaults filled in. Checkpoints keep it. As it is here, of a model that no registry
  // has: its units' names and how many parameters there are.
  virtual Json configuration() const;
  // Losses per sample: the context for a language model that predicts at each position, the outputs
  // of a regression, else 1.
  virtual int64_t targets_per_sample() const { return 1; }
  // The elements that this rank has at once of a micro-batch's logits, or of their gradients: what
  // the last unit hands on, where it says nothing else. `split`: its backward_weight is put off.
  virtual int64_t logits_at_once(const MicroBatch& batch, bool /*split*/) const {
    const OutputShape shape = units_.back()->output_shape();
    return shape.rows_at(parameters_.mesh(), batch) * shape.cols_at(parameters_.mesh());
  }
  // What units keep of messages to other ranks, in memory besides that of passes.
  virtual int64_t message_bytes(const MicroBatch& /*batch*/, DType /*activations*/) const {
    return 0;
  }
  // Whether the tokens of its samples may be dealt out over the context axis, and how many tokens
  // each sees at most (0: all).
  virtual bool takes_parts_of_samples() const { return false; }
  virtual int64_t attention_window() const { return 0; }
  // True if its images may be cut over the spatial axis.
  virtual bool takes_tiles() const { return false; }
  // Deterministic mode: how many parts what tensor ranks share is computed in (slices.h); else 1.
  virtual int slices() const { return 1; }
  // Units count the tokens of their experts here; null if the model has no experts.
  virtual ExpertLoad* expert_load() { return nullptr; }
  // Of a micro-batch's losses those that count: the step's loss is the mean over them.
  virtual int64_t targets_in(const MicroBatch& batch) const {
    if (batch.targets.empty()) return batch.rows(targets_per_sample());
    return std::ranges::count_if(batch.targets, [](int32_t target) { return target >= 0; });
  }

 protected:
  // Of the rank at this place of the mesh.
  explicit Model(const MeshPlace& mesh = {}) : parameters_(mesh) {}

  // Units are added in forward order; `Made` takes (ParameterTable&, arguments...).
  template <typename Made, typename... Arguments>
  void add_unit(Arguments&&... arguments) {
    parameters_.begin_unit(static_cast<int>(units_.size()));
    units_.push_back(std::make_unique<Made>(parameters_, std::forward<Arguments>(arguments)...));
  }

  ParameterTable parameters_;
  std::vector<std::unique_ptr<Unit>> units_;
};

// A model's configuration for people, in one line: gpt2 layers=4 heads=4.
std::string in_words(const Json& configuration);

}  // namespace tutti::training
