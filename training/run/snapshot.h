// Saves a replica's state as a checkpoint and loads it, with any number of ranks and any ZeRO
// stage.
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
  RunDirectory* directory = nullptr;  // directory of the run on rank 0; null on other ranks
  int64_t step = 0;
  Json configuration;           // configuration of the run; rank 0's is stored
  Json state = Json::object();  // state of the trainer; rank 0's is stored
  int keep = 2;                 // number of the newest steps to keep; 0: all
  bool best = false;            // see SaveRequest
};

// Views of the replica's memory that is to be saved. The next step changes that memory.
struct SnapshotParts {
  SaveRequest request;
  std::vector<TensorPiece> pieces;
};

// Collective. Returns the parts to save, and adds the loss scale to the state.
SnapshotParts parts_of(Replica& replica, Model& model, Snapshot snapshot);
// Collective. Saves a checkpoint. Throws as save_checkpoint() does.
void save_snapshot(Replica& replica, Model& model, Snapshot snapshot);

// Collective. Loads parameters and optimizer state from a checkpoint. Returns the trainer's state;
// its "step" is the saved step. Throws Error(invalid_argument) for a checkpoint of another model or
// optimizer, and as reading from a Checkpoint does.
Json load_snapshot(Replica& replica, Model& model, const Checkpoint& checkpoint);

// Collective. Loads what load_snapshot() loads, but from the copies that the ranks of an earlier
// run keep in memory.
Json load_kept(Replica& replica, KeptState& kept);

// Collective. Loads only the model from a source of tensors "model.NAME": all parameters, and the
// buffers that the source has. `path`: the source's path, for errors.
void load_parameters(Replica& replica, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
