// Saving a checkpoint: every rank writes the pieces of tensors that it owns.
//
// DIRECTORY/step-00000123/ gets one file per rank (rank-0003-of-0008.safetensors) and
// checkpoint.json, which describes their contents. A tensor is stored as ranges of its elements, or
// of the elements of its slices, so loading does not depend on the number of ranks that saved it or
// on their sharding.
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
  // On rank 0, null elsewhere. Jobs on several hosts need a shared directory.
  RunDirectory* directory = nullptr;
  int64_t step = 0;
  Json model = "";              // Model::configuration()
  Json configuration;           // of the run; rank 0's is stored
  Json state = Json::object();  // of the trainer; rank 0's is stored
  int keep = 2;                 // number of the run's newest steps to keep; 0: all
  bool best = false;            // best of the run so far: it is kept, and linked as `best`
  // For tests: called between the phases of the protocol.
  std::function<void(std::string_view phase)> at_phase = [](std::string_view) {};
};

// A save in phases, so that slow ones may overlap with other work. All ranks make the same
// collective calls, in this order; the other calls may be made by any thread, one after the other.
class CheckpointSave {
 public:
  // Collective: rank 0 creates the folder. The pieces' memory must not change until write() has
  // returned. Throws as save_checkpoint() does.
  CheckpointSave(SaveRequest request, std::vector<TensorPiece> pieces, Group group);

  void write();     // writes this rank's file, durably
  void collect();   // Collective: rank 0 gathers the results of all ranks' writes.
  void publish();   // on rank 0: publishes the step if all writes succeeded; prunes older ones
  void conclude();  // Collective. Throws, on every rank, an error of any rank.

 private:
  SaveRequest request_;
  std::vector<TensorPiece> pieces_;
  Group group_;
  std::string failed_;                      // prefix of an error's text
  std::optional<Publication> publication_;  // on rank 0
  std::string folder_;
  std::string report_;                // of this rank
  std::vector<std::string> reports_;  // on rank 0, of all
  std::exception_ptr problem_;        // of publish()
};

// Collective. On return the checkpoint is on the disk and `DIRECTORY/latest` names it. Each element
// of each tensor must be provided by exactly one rank.
//
// The files are written to a folder beside the older checkpoints, which is renamed when all are on
// the disk: a process that dies at any moment leaves either the old state or the complete new step.
// A step of the same name is replaced if it is the run's own, otherwise set aside. Then the run's
// older steps are removed, except the newest `keep`.
//
// Throws the same Error on every rank, leaving older checkpoints intact: code system if a disk is
// full or a directory cannot be written, mismatch if pieces overlap or are missing,
// invalid_argument for impossible pieces.
void save_checkpoint(const SaveRequest& request, std::span<const TensorPiece> pieces,
                     const Group& group);

}  // namespace tutti::training
