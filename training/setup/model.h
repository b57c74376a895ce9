// The model that options describe.
#pragma once

#include <cstdint>
#include <memory>

#include "training/model.h"
#include "training/modules/batch_norm.h"
#include "training/setup/options.h"

namespace tutti::training {

// Throws Error(invalid_argument) for sizes that make no sense. With a reducer, batch statistics are
// summed over ranks, if --sync-bn asks for it.
std::unique_ptr<Model> make_model(const RunOptions& options, StatisticsReducer* reducer = nullptr);
// Samples of a micro-batch, and tokens that the model sees, where no option says otherwise.
int64_t default_micro_batch(const ModelOptions& options);
int64_t context_of(const ModelOptions& options);

}  // namespace tutti::training
