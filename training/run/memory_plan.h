// What a run will take of each rank's memory, told before there are ranks: parameters, gradients,
// masters and the optimizer's state by arithmetic (layout.h), activations by one micro-batch
// through the model's units, one unit at a time: a model that is larger than memory is planned
// where its largest unit fits. A pipeline's activations and messages are counted in its plan.
#pragma once

#include <cstdint>

#include "training/core/model.h"
#include "training/pipeline/profile.h"
#include "training/run/train_options.h"

namespace tutti::training {

// What a communication hook takes is left out.
class MemoryPlan {
 public:
  // `model` is that of a rank of a mesh; `batch` is a micro-batch of the run, of which a
  // data-parallel rank has `passes` in a step at most. All three outlive the plan. While it is made
  // the parameters' views point elsewhere; afterwards they are empty. Throws as profile_model()
  // does.
  MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options, int64_t passes);

  // Of the ranks that differ from the model's in these places alone. Throws as make_layout() and
  // make_placement() do.
  MemoryReport of(int data_place, int stage) const;
  // Of the activations of a rank of that stage: logits, of the rows that are there at once.
  int64_t logits(int stage) const;

 private:
  Model& model_;
  const MicroBatch& batch_;
  const TrainOptions& options_;
  int64_t passes_;
  pipeline::Profile profile_;
};

// All kinds together.
int64_t total(const MemoryReport& memory);

}  // namespace tutti::training
