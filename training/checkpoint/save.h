// Saves a checkpoint: every rank writes the pieces of tensors that it owns.
//
// DIRECTORY/step-00000123/ gets one file per rank (rank-0003-of-0008.safetensors) and
// checkpoint.json, which describes the contents of these files. A tensor is stored as ranges of its
// elements, or of the elements of its slices, so a job with another number of ranks or another
// sharding can load it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/publish.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/tensor_piece.h"
#include "training/core/group.h"

namespace tutti::training {

struct SaveRequest {
  // The directory of the run on rank 0; null on other ranks. Jobs on several hosts need a shared
  // directory.
  RunDirectory* directory = nullptr;
  int64_t step = 0;
  Json model = "";              // Model::configuration()
  Json configuration;           // configuration of the run; rank 0's is stored
  Json state = Json::object();  // state of the trainer; rank 0's is stored
  int keep = 2;                 // number of the run's newest steps to keep; 0 keeps all
  // true if this is the best step of the run so far; it is kept, and the link `best` points to it
  bool best = false;
  // For tests: called between the phases of the protocol.
  std::function<void(std::string_view phase)> at_phase = [](std::string_view) {};
};

// A save in phases, so that slow phases can overlap with other work. All ranks call the collective
// functions in the order below. Any thread may call the other functions, one at a time.
class CheckpointSave {
 public:
  // Collective: rank 0 creates the folder. The pieces' memory must not change until write() has
  // returned. Throws as save_checkpoint() does.
  CheckpointSave(SaveRequest request, std::vector<TensorPiece> pieces, Group group);

  void write();     // Writes this rank's file and blocks until it is on the disk.
  void collect();   // Collective. Gathers the results of all ranks' writes on rank 0.
  void publish();   // On rank 0: publishes the step if all writes succeeded, and removes old steps.
  void conclude();  // Collective. Throws on every rank if any rank had an error.

 private:
  SaveRequest request_;
  std::vector<TensorPiece> pieces_;
  Group group_;
  std::string failed_;                      // prefix of the error's text if the save fails
  std::optional<Publication> publication_;  // set on rank 0
  std::string folder_;
  std::string report_;                // result of this rank's write
  std::vector<std::string> reports_;  // on rank 0: the results of all ranks
  std::exception_ptr problem_;        // error of publish()
};

// Collective. Saves a checkpoint; on return the checkpoint is on the disk and `DIRECTORY/latest`
// names it. Exactly one rank must provide each element of each tensor.
//
// The files are written to a folder beside the older checkpoints, which is renamed once all files
// are on the disk. A process that dies at any moment leaves either the old steps or the complete
// new one. An existing step of the same name is replaced if it belongs to the run, and otherwise
// set aside. Afterwards the run's older steps are removed, except the newest `keep`.
//
// On failure throws the same Error on every rank and keeps the older checkpoints: code system if a
// disk is full or a directory cannot be written, mismatch if pieces overlap or are missing,
// invalid_argument for impossible pieces.
void save_checkpoint(const SaveRequest& request, std::span<const TensorPiece> pieces,
                     const Group& group);

}  // namespace tutti::training
