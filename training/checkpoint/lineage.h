// The run to which steps in a directory belong, and the choice of the step to resume.
//
// A run has an identity, which all of its steps and resumes share. Steps of an earlier format,
// without one, belong to the run that continues from them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint.h"

namespace tutti::training {

std::string new_run_identity();  // 128 random bits: 32 hexadecimal digits

// A step's folder, as its manifest describes it.
struct StepSeen {
  int64_t step = 0;
  std::string run;             // empty: unknown
  uint64_t fence = 0;          // number of its writer; 0: unknown
  std::optional<Error> error;  // why the manifest cannot be used
};
// All steps in the directory, ascending. Throws Error(system) if it cannot be listed.
std::vector<StepSeen> look_at_steps(const std::string& directory);

// "run 0f3c... (its last step is 40)", for each run among the steps; "" for none.
std::string describe_runs(const std::vector<StepSeen>& steps);

struct ChosenStep {
  struct Skipped {
    int64_t step = 0;
    std::string why;
  };

  Checkpoint checkpoint;
  std::vector<Skipped> skipped;  // later steps that were not chosen because they are damaged
  std::vector<int64_t> own;      // of the same run up to this step, ascending
  std::vector<int64_t> others;   // all others: later steps, other runs', unreadable ones
  bool is_latest = false;        // `latest` names it
};

// Throws Error if a step's files are incomplete or damaged; the step is then skipped.
using StepCheck = std::function<void(const Checkpoint&)>;

// Returns the newest complete step of a run; with `wanted` the newest up to that one, which must
// exist. If there are several runs, it is the run of the step that `latest` names. Reads all files
// of a step before it is chosen, unless `check` does otherwise. Throws Error(invalid_argument) if
// there is no such step, or the run is ambiguous; Error(unsupported) for a step that a newer
// version has saved, which is never skipped.
ChosenStep choose_step(const std::string& directory, std::optional<int64_t> wanted,
                       const StepCheck& check = &Checkpoint::verify_alone);

}  // namespace tutti::training
