// What a run will take of each rank's memory, told before there are ranks: parameters, gradients,
// masters and the optimizer's state by arithmetic (layout.h), activations by one micro-batch
// through the model's units, one unit at a time: a model that is larger than memory is planned
// where its largest unit fits. A pipeline's activations and messages are counted in its plan.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "training/core/model.h"
#include "training/optimizers/optimizer.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/profile.h"
#include "training/run/train_options.h"

namespace tutti::training {

// What a communication hook takes is left out.
class MemoryPlan {
 public:
  // `model` is that of a rank of a mesh; `batch` is a micro-batch of the run, of which a
  // data-parallel rank has `passes` in a step at most. The model and the batch outlive the plan.
  // While it is made the parameters' views point elsewhere; afterwards they are empty. Throws as
  // profile_model() and make_placement() do.
  MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options, int64_t passes);
  // The same where the model's units have been profiled.
  MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options, int64_t passes,
             pipeline::Profile profile);

  // The memory of the rank at this place: the model's along the axes over which parameters are cut.
  // Throws as make_layout() does.
  MemoryReport of(const MeshPlace& rank) const;
  // Of the activations of a rank of that stage: logits, of the rows that are there at once.
  int64_t logits(int stage) const;

 private:
  // What ranks of a stage have in common; one stage without a pipeline.
  struct Stage {
    pipeline::Placement placement;
    int versions = 1;         // of weights
    bool split = false;       // backward is in two parts
    int64_t activations = 0;  // bytes
    int64_t activation_files = 0;
    int64_t activation_pages = 0;
    int64_t messages = 0;  // from and to other stages, at once
  };

  // Bytes of the optimizer's states: of each that elements have, and of all that whole parameters
  // have.
  struct StateBytes {
    int64_t each = 0;
    int64_t whole = 0;
    int64_t two_wholes = 0;  // of the two parameters that have most
  };

  // Adds the parts of a report that lie in the storage, the bytes of the gradients that workers
  // send to this rank, those of the optimizer's states, and what of all that is in files. Returns
  // the elements that it owns.
  int64_t add_storage(const Stage& stage, const MeshPlace& rank, MemoryReport& report,
                      StateBytes& states) const;
  int64_t whole_state_bytes(const Layout& layout, std::span<const Piece> own, int self,
                            int64_t& of_two) const;

  int64_t own_writes() const;
  int64_t shared_elements(const Stage& stage) const;
  int64_t gradients_apart(const Stage& stage) const;

  Model& model_;
  const MicroBatch& batch_;
  std::shared_ptr<const Optimizer> optimizer_;
  TrainOptions options_;
  int64_t passes_;
  pipeline::Profile profile_;
  std::vector<Stage> stages_;
};

// All kinds together that are in memory.
int64_t total(const MemoryReport& memory);

}  // namespace tutti::training
