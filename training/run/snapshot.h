// Saves a replica's state as a checkpoint and loads it, at any numbers of ranks and ZeRO stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/checkpoint.h"
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
  Json state = Json::object();  // the trainer's state (rank 0's is kept)
  int keep = 2;                 // steps; 0: all
  bool best = false;            // see SaveRequest
};

// Views of the replica's memory to be saved, which the next step changes.
struct SnapshotParts {
  SaveRequest request;
  std::vector<TensorPiece> pieces;
};

// Collective. Collects the parts to save; adds the loss scale to the state.
SnapshotParts parts_of(Replica& replica, Model& model, Snapshot snapshot);
// Collective. Saves a checkpoint. Throws as save_checkpoint() does.
void save_snapshot(Replica& replica, Model& model, Snapshot snapshot);

// Collective. Loads parameters and optimizer state from a checkpoint. Returns the trainer's state;
// its "step" is the saved step. Throws Error(invalid_argument) for a checkpoint of another model or
// optimizer, and as reading from a Checkpoint does.
Json load_snapshot(Replica& replica, Model& model, const Checkpoint& checkpoint);

// Collective. Likewise from the copies that the ranks of an earlier run keep in memory.
Json load_kept(Replica& replica, KeptState& kept);

// Loads the model alone from any source of tensors "model.NAME": its parameters, and those of its
// buffers that the source has.
void load_parameters(Replica& replica, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
