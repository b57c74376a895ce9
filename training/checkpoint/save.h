// Saving a checkpoint: every rank writes the pieces of tensors that it owns.
//
// DIRECTORY/step-00000123/ gets one file per rank (rank-0003-of-0008.safetensors) and
// checkpoint.json, which says what is in them. A tensor is stored by ranges of its elements, so a
// load is independent of how many ranks saved it and of how they had shared it out.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/tensor.h"

namespace tutti::training {

// The ranks that save together. Both functions are collective: all ranks call them in the same
// order. What they throw, save_checkpoint() throws.
struct Group {
  int rank = 0;
  int size = 1;
  // On rank 0: every rank's text, in the order of ranks. Elsewhere: nothing.
  std::function<std::vector<std::string>(std::string)> gather_to_first;
  // Everywhere: the text that rank 0 gave.
  std::function<std::string(std::string)> from_first;
};

// A process by itself.
Group group_of_one();

struct TensorPiece {
  std::string name;            // "model.h.0.ln_1.weight", "optimizer.exp_avg.h.0.ln_1.weight", ...
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0;           // element of the tensor at which the piece starts
  ConstTensor data;            // 1 x count
};

struct SaveRequest {
  std::string
      directory;  // made where it is not there; on several hosts, one that all of them share
  int64_t step = 0;
  std::string model;                                // Model::description()
  nlohmann::json state = nlohmann::json::object();  // the trainer's own; rank 0's is stored
  int keep = 2;                                     // this checkpoint and those before it; 0: all
  // For tests: called between the parts of the protocol.
  std::function<void(std::string_view phase)> at_phase = [](std::string_view) {};
};

// Collective. When it returns, the checkpoint is on the disk and `DIRECTORY/latest` names it. Each
// element of each tensor is given by exactly one rank.
//
// The files are written to a folder beside the older checkpoints, which gets its name when all are
// on the disk: a process that ends at any moment leaves what was there before, or all of the new
// one. A checkpoint of the same step is replaced. Then older ones are removed, all but `keep`, and
// so is what runs that died have left. Later steps stay: they are of a run that was taken up again
// at an earlier step, and are replaced when it gets there.
//
// Throws the same Error on every rank, with the older checkpoints as they were: code system where a
// disk is full or a directory cannot be written, mismatch where pieces overlap or are missing,
// invalid_argument for impossible pieces, and where another run is saving into this directory.
void save_checkpoint(const SaveRequest& request, std::span<const TensorPiece> pieces,
                     const Group& group);

}  // namespace tutti::training
