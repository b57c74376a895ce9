// Which run the steps in a directory belong to, and which of them a run goes on from.
//
// A run is known by its identity, which all of its steps and resumes have. Steps without one, of an
// earlier format, belong to the run that goes on from them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint.h"

namespace tutti::training {

std::string new_run_identity();  // 128 random bits: 32 hexadecimal digits

// A step's folder, as its description says.
struct StepSeen {
  int64_t step = 0;
  std::string run;             // empty: none is said
  uint64_t fence = 0;          // the number of its writer; 0: none is said
  std::optional<Error> error;  // why the description cannot be used
};
// All in the directory, ascending. Throws Error(system) where it cannot be listed.
std::vector<StepSeen> look_at_steps(const std::string& directory);

// "run 0f3c... (its last step is 40)", of each run that the steps are of; "" of none.
std::string describe_runs(const std::vector<StepSeen>& steps);

struct ChosenStep {
  struct Skipped {
    int64_t step = 0;
    std::string why;
  };

  Checkpoint checkpoint;
  std::vector<Skipped> skipped;  // later steps that would have been taken, were they whole
  std::vector<int64_t> own;      // of the same run up to this step, ascending
  std::vector<int64_t> others;   // all else: later steps, other runs', unreadable ones
  bool is_latest = false;        // `latest` names it
};

// Throws Error where a step's files are not whole: a step of which it throws is skipped.
using StepCheck = std::function<void(const Checkpoint&)>;

// The newest whole step of a run; with `wanted` the newest up to that one, which must be there.
// Where there are several runs, it is the one that `latest` names. Reads all files of a step before
// it is chosen, unless `check` does otherwise. Throws Error(invalid_argument) where there is none,
// or nothing says which run it is; Error(unsupported) rather than passing over a step that a newer
// Tutti has saved.
ChosenStep choose_step(const std::string& directory, std::optional<int64_t> wanted,
                       const StepCheck& check = &Checkpoint::verify_alone);

}  // namespace tutti::training
