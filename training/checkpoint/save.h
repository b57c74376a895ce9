// Saving a checkpoint: every rank writes the pieces of tensors that it owns.
//
// DIRECTORY/step-00000123/ gets one file per rank (rank-0003-of-0008.safetensors) and
// checkpoint.json, which says what is in them. A tensor is stored by ranges of its elements, or of
// the elements of its slices, so a load is independent of how many ranks saved it and of how they
// had shared it out.
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
  // On rank 0, null elsewhere. On several hosts it is one that all of them share.
  RunDirectory* directory = nullptr;
  int64_t step = 0;
  Json model = "";              // Model::configuration()
  Json configuration;           // the run's; rank 0's is stored
  Json state = Json::object();  // the trainer's own; rank 0's is stored
  int keep = 2;                 // this step and the run's before it; 0: all
  bool best = false;            // of the run so far: it stays, and is called `best`
  // For tests: called between the parts of the protocol.
  std::function<void(std::string_view phase)> at_phase = [](std::string_view) {};
};

// A save in parts, so that the slow ones may go on beside other work. All ranks make the same
// collective calls, in this order; the others may be any thread's, one after the other.
class CheckpointSave {
 public:
  // Collective: rank 0 makes the folder. What the pieces refer to stays as it is until write() has
  // returned. Throws as save_checkpoint() does.
  CheckpointSave(SaveRequest request, std::vector<TensorPiece> pieces, Group group);

  void write();     // this rank's file, to the disk
  void collect();   // Collective: rank 0 learns what became of the files.
  void publish();   // on rank 0: the step gets its name, if all is well; older ones go
  void conclude();  // Collective. Throws, on every rank, what went wrong on any.

 private:
  SaveRequest request_;
  std::vector<TensorPiece> pieces_;
  Group group_;
  std::string failed_;                      // the beginning of an error's text
  std::optional<Publication> publication_;  // on rank 0
  std::string folder_;
  std::string report_;                // of this rank
  std::vector<std::string> reports_;  // on rank 0, of all
  std::exception_ptr problem_;        // of publish()
};

// Collective. When it returns, the checkpoint is on the disk and `DIRECTORY/latest` names it. Each
// element of each tensor is given by exactly one rank.
//
// The files are written to a folder beside the older checkpoints, which gets its name when all are
// on the disk: a process that ends at any moment leaves what was there before, or all of the new
// one. A step of the same name is replaced if it is the run's own, else set aside. Then the run's
// older steps are removed, all but `keep`.
//
// Throws the same Error on every rank, with the older checkpoints as they were: code system where a
// disk is full or a directory cannot be written, mismatch where pieces overlap or are missing,
// invalid_argument for impossible pieces.
void save_checkpoint(const SaveRequest& request, std::span<const TensorPiece> pieces,
                     const Group& group);

}  // namespace tutti::training
