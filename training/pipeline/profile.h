// Measures the costs of a model's units on this machine, one unit at a time, so that a model larger
// than memory can be profiled if its largest unit fits.
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

// Memory of a unit for the profiled micro-batch, in bytes (runner.h describes the arenas).
struct UnitMemory {
  int64_t kept = 0;     // kept from forward to backward, including the output
  int64_t forward = 0;  // maximum during forward, including `kept`
  // maximum during backward in addition to `kept`: temporaries, input gradient
  int64_t backward = 0;
};

// Messages of a unit to other ranks of the model's mesh for the profiled micro-batch. Messages
// between stages are not included.
struct UnitMessages {
  std::vector<UnsentMessage> forward;
  std::vector<UnsentMessage> backward;
};

struct Profile {
  std::string model;                   // description of the model
  int64_t samples = 0;                 // samples in the timed micro-batch
  std::vector<Layer> layers;           // the model's units, in order
  std::vector<UnitMemory> memory;      // by unit
  std::vector<UnitMessages> messages;  // by unit
};

// Profiles all units. They read initial parameters and random inputs, except that the first unit
// reads `batch`, and the last unit reads the targets of `batch`. Times are medians of `runs` runs
// after a warm-up run. With options.checkpoint_units, backward includes recomputation. Units of one
// kind and the same shapes share one measurement. Parameters that several units share are counted
// in each of these units.
//
// During the call the parameters' views point at memory of this function; afterwards they are
// empty. Running statistics are unchanged. Throws Error(invalid_argument) for an empty micro-batch
// and for runs < 1. options.dtype: any type that `convert` supports (f32, bf16, f16).
Profile profile_model(Model& model, const MicroBatch& batch, const RunnerOptions& options = {},
                      int runs = 5);

}  // namespace tutti::training::pipeline
