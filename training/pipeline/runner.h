// Runs micro-batches through a model's units, or through a part of them (a pipeline stage), forward
// and backward, with or without keeping all activations.
//
//   forward   unit 0 ... unit n-1     outputs stay in the slot's arena (checkpointed: outputs only)
//   backward  unit n-1 ... unit 0     (checkpointed: each unit's forward once more)
//
// Tensor-parallel ranks may keep shards of replicated outputs between forward and backward.
//
// Several micro-batches may be in flight, each in its own slot.
//
// Activation checkpointing: Chen et al.: Training deep nets with sublinear memory cost, 2016;
// partitioned: Rajbhandari et al.: ZeRO, 2020, section 6.1.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "training/core/gemm_format.h"
#include "training/core/model.h"
#include "training/core/unit_hooks.h"
#include "training/offload/file_arena.h"
#include "training/offload/pager.h"

namespace tutti::training {

struct RunnerOptions {
  DType dtype = DType::f32;       // type of activations
  bool checkpoint_units = false;  // keep each unit's output only
  // Keep only this tensor-parallel rank's rows of an output that is the input of a recomputed unit.
  bool partition_checkpoints = false;
  uint64_t seed = 0;                          // seed of dropout and stochastic rounding
  GemmFormat gemm_format = GemmFormat::none;  // see PassContext
  Mesh* mesh = nullptr;                       // passed to units; must outlive the runner
  KeyValueCache* cache = nullptr;             // passed to units; must outlive the runner
  // Memory space of activations; null: the host's. Parameters and inputs must be in the same space.
  const Backend* backend = nullptr;
  // If not null, and activations are in the host's memory, inputs of recomputed units are kept in
  // files of this pager. It must outlive the runner.
  Pager* pager = nullptr;
};

// Units [begin, end).
struct UnitRange {
  int begin = 0;
  int end = 0;
  bool operator==(const UnitRange&) const = default;
};

// Returns true if the unit's forward is recomputed in backward.
bool is_checkpointed(const Model& model, const RunnerOptions& options, int unit);
// Returns true if each tensor-parallel rank keeps only its rows of the unit's output. That requires
// options.partition_checkpoints, a replicated output, and that the next unit is in the same part of
// the model and is recomputed from this output. The unit's own backward must not read the output,
// because the unit is recomputed as well or its backward needs nothing.
bool keeps_rows(const Model& model, const RunnerOptions& options, const UnitRange& part, int unit);

// Factors with which backward starts (pass.h).
struct LossScales {
  double target = 1;
  double sample = 1;
};

struct UnitLoss {
  int unit = 0;
  NamedLoss loss;
};

struct PassResult {
  double loss_sum = 0;           // sum over the micro-batch's targets, in nats
  int64_t correct = 0;           // number of targets whose class had the largest logit
  std::vector<UnitLoss> losses;  // losses that units of the part have added
  // The first unit of the part with a NaN or an infinity in its output, or in a loss that it added.
  std::optional<int> broken_unit;
};

class ModelRunner {
 public:
  // Creates a runner; the model must outlive it.
  ModelRunner(Model& model, const RunnerOptions& options)
      : model_(model), options_(options), scratch_(options.backend) {}

  // The functions below run the whole model, one micro-batch at a time.

  // Runs forward and backward, which adds d(scaled losses)/dParameter to the gradients. Runs
  // backward even if a loss is not finite, because other ranks then see non-finite gradients.
  PassResult train(const MicroBatch& batch, const LossScales& scales, UnitHooks& hooks);
  PassResult evaluate(const MicroBatch& batch, UnitHooks& hooks);
  // Returns the logits of all positions, valid until the next call.
  Tensor predict(const MicroBatch& batch, UnitHooks& hooks);

  // The functions below run a part of the model. A slot's micro-batch runs forward, then backward
  // (whole, or in two parts); then the slot is free. The micro-batch and the input must live until
  // the slot is free.

  struct Part {
    UnitRange units;
    int slot = 0;
  };
  // Runs forward. Returns the output of the last unit, valid until backward. The first unit ignores
  // `input`.
  Tensor forward(const Part& part, const MicroBatch& batch, ConstTensor input,
                 const LossScales& scales, UnitHooks& hooks);
  // Returns the results of the slot's last forward. Blocks until they are computed, so call it
  // after backward. The results are available until the slot's next forward. If the part does not
  // contain the model's last unit, loss_sum and `correct` are 0.
  PassResult result(int slot);
  // Runs backward. Returns the gradient of the input, valid until the next call; empty if the part
  // begins with the model's first unit.
  Tensor backward(int slot, ConstTensor output_gradient, UnitHooks& hooks);
  // Run backward in two halves. The output's gradient must live until backward_weight() returns,
  // and the result of backward_input() is valid until then.
  Tensor backward_input(int slot, ConstTensor output_gradient, UnitHooks& hooks);
  void backward_weight(int slot, UnitHooks& hooks);
  // Runs forward without keeping anything for backward; the output is valid until the next call
  // with this slot. `training`: enables dropout and batch statistics (PassContext).
  Tensor forward_only(const Part& part, const MicroBatch& batch, ConstTensor input,
                      UnitHooks& hooks, bool training = false);

  // Returns the maximum number of bytes of activations and temporaries.
  size_t activation_bytes() const;
  // Returns, for each slot, the maximum number of bytes of its arena, which contains the tensors
  // that forward keeps for backward.
  std::vector<size_t> slot_bytes() const;
  // file_bytes() returns the maximum number of bytes that were kept in files. page_bytes() returns
  // an upper bound of those that were in memory at the same time.
  size_t file_bytes() const;
  size_t page_bytes() const;

 private:
  // A micro-batch in flight. The address of a slot must be stable, because deferred work refers to
  // its pass.
  struct Slot {
    explicit Slot(const Backend* backend) : arena(backend) {}
    Arena arena;
    std::optional<Pass> pass;
    UnitRange units;
    std::vector<Tensor> outputs;    // by unit of the part
    std::vector<size_t> work_ends;  // by unit of the part: end of its work in Pass::weight_work
    std::vector<UnitLoss> losses;
    ConstTensor input;
    std::optional<FileArena> files;  // holds inputs of recomputed units
  };

  Slot& slot(int index);
  // Copies an output into memory that lasts until backward.
  Tensor keep(Slot& slot, ConstTensor output);
  // fetch_output() starts to read a unit's output from its file; evict_output() releases the pages
  // of the output.
  void fetch_output(const Slot& slot, int unit);
  void evict_output(const Slot& slot, int unit);
  // Blocks until the backend has completed all work of the units, so that other ranks, hooks and
  // callers can read the results.
  void wait_for_units() const;
  Pass& start(Slot& slot, const Part& part, const MicroBatch& batch, ConstTensor input,
              bool training, const LossScales& scales);
  Tensor forward_unit(Slot& slot, Pass& pass, int index, ConstTensor input);
  Tensor forward_checkpointed(Slot& slot, int index, ConstTensor input);
  Tensor forward_in_scratch(Slot& slot, int index, ConstTensor input);
  ConstTensor own_rows(ConstTensor output);
  ConstTensor recomputed_input(Slot& slot, Pass& pass, int index);
  Tensor backward_unit(Slot& slot, Pass& pass, int index, ConstTensor gradient, UnitHooks& hooks);
  UnitRange all() const { return {0, unit_count()}; }
  int unit_count() const { return static_cast<int>(model_.units().size()); }
  Unit& unit(int index) { return *model_.units()[static_cast<size_t>(index)]; }
  bool is_checkpointed(int index) const {
    return training::is_checkpointed(model_, options_, index);
  }
  bool keeps_rows(const Slot& slot, int index) const {
    return training::keeps_rows(model_, options_, slot.units, index);
  }

  Model& model_;
  RunnerOptions options_;
  Arena scratch_;         // memory of recomputed units and of backward that is not deferred
  size_t input_end_ = 0;  // in scratch_: end of the next unit's input, if it is kept in shards
  std::deque<Slot> slots_;
  size_t largest_kept_ = 0;  // bytes of the largest output in a file
};

}  // namespace tutti::training
