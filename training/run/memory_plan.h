// What a run will take of a rank's memory, told before there are ranks: parameters, gradients,
// masters and the optimizer's state by arithmetic (layout.h), activations by one micro-batch
// through the model's units, one unit at a time: a model that is larger than memory is planned
// where its largest unit fits.
#pragma once

#include "training/core/model.h"
#include "training/run/train_options.h"

namespace tutti::training {

// Of the rank that the model is made for, of so many data-parallel ranks, without a pipeline;
// `batch` is a micro-batch of the run, of which a rank has `passes` in a step at most. What a
// communication hook takes is left out. While it lasts, the parameters' views point elsewhere;
// afterwards they are empty.
//
// Throws as profile_model() and make_layout() do.
MemoryReport planned_memory(Model& model, const MicroBatch& batch, const TrainOptions& options,
                            int ranks, int64_t passes);

// All kinds together.
int64_t total(const MemoryReport& memory);

}  // namespace tutti::training
