// A replica's state as a checkpoint: saved by any number of ranks in any ZeRO stage, loaded by any
// other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/save.h"
#include "training/checkpoint/tensor_source.h"
#include "training/engine/replica.h"
#include "training/survival/kept_state.h"

namespace tutti::training {

struct Snapshot {
  RunDirectory* directory = nullptr;  // on rank 0, null elsewhere
  int64_t step = 0;
  Json configuration;           // rank 0's is kept
  Json state = Json::object();  // the trainer's own (rank 0's is kept)
  int keep = 2;                 // steps; 0: all
  bool best = false;            // as in SaveRequest
};

// What is to be saved: views of the replica's memory, which the next step changes.
struct SnapshotParts {
  SaveRequest request;
  std::vector<TensorPiece> pieces;
};

// Collective. The loss scale is added to the state.
SnapshotParts parts_of(Replica& replica, Model& model, Snapshot snapshot);
// Collective. Saves them. Throws as save_checkpoint() does.
void save_snapshot(Replica& replica, Model& model, Snapshot snapshot);

// Opens the latest checkpoint of a directory, or one step's folder, and takes over parameters and
// optimizer state. Collective. Returns the trainer's state; its "step" is the step that was saved.
// Throws Error(invalid_argument) for a checkpoint of another model or optimizer, and as
// Checkpoint::open() does.
Json load_snapshot(Replica& replica, Model& model, const std::string& directory);

// Collective. The same from what the ranks of a run before this one keep in memory.
Json load_kept(Replica& replica, KeptState& kept);

// The model alone, from any source of tensors "model.NAME": its parameters, and its other state as
// far as the source has it.
void load_parameters(Replica& replica, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
