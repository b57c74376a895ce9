// What a model's units take on this machine, one unit at a time: a model that is larger than memory
// can be profiled where its largest unit fits.
//
//   unit 0   |values|gradients|input|output's gradient|  forward, backward, forward, backward ...
//   unit 1   |values|...                                 in the same memory
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/core/model.h"
#include "training/pipeline/partition.h"
#include "training/pipeline/runner.h"

namespace tutti::training::pipeline {

// What a unit takes for that micro-batch, in bytes (runner.h says what lies where when).
struct UnitMemory {
  int64_t kept = 0;      // from forward to backward, its output included
  int64_t forward = 0;   // the most during forward, what is kept included
  int64_t backward = 0;  // the most during backward, beside that: temporaries, the input's gradient
};

// Messages of a unit to other ranks of the mesh that its model is made for, for that micro-batch;
// messages between stages are not among them.
struct UnitMessages {
  std::vector<UnsentMessage> forward;
  std::vector<UnsentMessage> backward;
};

struct Profile {
  std::string model;               // its description
  int64_t samples = 0;             // of the micro-batch that was timed
  std::vector<Layer> layers;       // the model's units, in order
  std::vector<UnitMemory> memory;  // theirs
  std::vector<UnitMessages> messages;
};

// Units get random inputs of their shape (the first and the last one also `batch`, which must make
// sense for them) and initial parameters. Times are the medians of `runs` runs, after one that is
// not counted; with options.checkpoint_units, backward has the repeated forward in it. Units of one
// kind and the same shapes share one measurement. Parameters that several units share count in
// each.
//
// While it lasts, the parameters' views point at memory of its own; afterwards they are empty.
// Running statistics stay as they are. Throws Error(invalid_argument) for an empty micro-batch and
// for no runs. Options: any dtype that `convert` knows (f32, bf16, f16).
Profile profile_model(Model& model, const MicroBatch& batch, const RunnerOptions& options = {},
                      int runs = 5);

}  // namespace tutti::training::pipeline
