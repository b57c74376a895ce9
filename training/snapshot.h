// A replica's state as a checkpoint: saved by any number of ranks in any ZeRO stage, loaded by any
// other.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "training/checkpoint/tensor_source.h"
#include "training/replica.h"

namespace tutti::training {

// Collective. `state` is the trainer's own (rank 0's is kept); the loss scale is added. Throws as
// save_checkpoint() does.
void save_snapshot(Replica& replica, Model& model, const std::string& directory, int64_t step,
                   nlohmann::json state, int keep);

// Opens the latest checkpoint of a directory, or one step's folder, and takes over parameters and
// optimizer state. Collective. Returns the trainer's state; its "step" is the step that was saved.
// Throws Error(invalid_argument) for a checkpoint of another model or optimizer, and as
// Checkpoint::open() does.
nlohmann::json load_snapshot(Replica& replica, Model& model, const std::string& directory);

// Parameters alone, from any source of tensors "model.NAME".
void load_parameters(Replica& replica, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
