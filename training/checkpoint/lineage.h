// Finds the run to which the steps in a directory belong, and chooses the step to resume.
//
// A run has an identity, which all of its steps and resumes share. Steps in an earlier format have
// no identity and belong to the run that continues from them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint.h"

namespace tutti::training {

std::string new_run_identity();  // Returns 128 random bits as 32 hexadecimal digits.

// A step's folder, as its manifest describes it.
struct StepFolder {
  int64_t step = 0;
  std::string run;             // ID of the run; empty: unknown
  uint64_t fence = 0;          // number of the writer that published the step (fence.h); 0: unknown
  std::optional<Error> error;  // set if the manifest cannot be used
};
// Returns all steps in the directory, ascending. Throws Error(system) if the directory cannot be
// listed.
std::vector<StepFolder> scan_steps(const std::string& directory);

// Describes each run among the steps for a message: "run 0f3c... (its last step is 40)". Returns ""
// if there is none.
std::string describe_runs(const std::vector<StepFolder>& steps);

struct ChosenStep {
  struct Skipped {
    int64_t step = 0;
    std::string why;
  };

  Checkpoint checkpoint;
  std::vector<Skipped> skipped;  // later steps that were not chosen because they are damaged
  std::vector<int64_t> own;      // steps of the same run up to this step, ascending
  // all other steps: later steps, steps of other runs, and unreadable steps
  std::vector<int64_t> others;
  bool is_latest = false;  // true if the file `latest` names this step
};

// A check of a step's files. It throws Error if they are incomplete or damaged; choose_step() then
// skips the step.
using StepCheck = std::function<void(const Checkpoint&)>;

// Returns the newest complete step of a run. With `wanted`, returns the newest complete step up to
// step `wanted`; that step must exist, but may be damaged. If the directory has several runs,
// chooses the run of step `wanted` or, without `wanted`, of the step that `latest` names. Calls
// `check` for a step before choosing it; the default reads all of the step's files. Throws
// Error(invalid_argument) if there is no complete step or the run is ambiguous, and
// Error(unsupported) for a step that a newer version has saved, because such a step is never
// skipped.
ChosenStep choose_step(const std::string& directory, std::optional<int64_t> wanted,
                       const StepCheck& check = &Checkpoint::verify_alone);

}  // namespace tutti::training
