// The directory of one run, locked while a job works in it. Rank 0 owns the object.
//
//   new run             requires a directory without steps
//   --overwrite         existing steps are removed once the new run has its first complete step
//   --resume [STEP]     continues the run from the newest complete step [up to STEP]
//   --resume auto       resumes if there are steps, complete or not; otherwise starts a new run
//
// A resumed run continues from a step. All other steps, that is later steps of its own (damaged, or
// abandoned by --resume STEP) and steps of other runs, are set aside: moved to DIR/set-aside-N/,
// where they stay until a user removes them. So the steps in a directory belong to one run, in one
// line, and only --overwrite and pruning (prune()) delete complete steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/directory_lock.h"
#include "training/checkpoint/fence.h"
#include "training/checkpoint/lineage.h"

namespace tutti::training {

struct RunStart {
  bool resume = false;
  bool or_new = false;          // resume if possible, otherwise start a new run
  std::optional<int64_t> step;  // to resume at; none: the newest
  bool overwrite = false;       // for a new run
  bool resumable = true;        // false: the caller (an import) has no --resume
};

// Key in a checkpoint's state: the validation loss, if it was known.
inline constexpr const char* kValidationLoss = "validation_loss";

// In a run's directory: files that came with its model and are exported with it.
inline constexpr const char* kCompanionFolder = "hugging-face";

class RunDirectory {
 public:
  // Creates and locks the directory, and chooses the step to resume; changes nothing else. Throws
  // Error(invalid_argument) if the directory belongs to another run or job, is a step's own folder,
  // or has nothing to resume, and Error(system) if it cannot be written. `history`: the writers
  // that this one continues, if it is the rest of a job after deaths; a directory that a part of
  // the job has written to after continuing without it is then refused as well. `check`: verifies
  // the files of a step to resume.
  RunDirectory(std::string directory, const RunStart& start, WriterHistory history = {},
               const StepCheck& check = &Checkpoint::verify_alone);
  // True if this start resumes a run.
  static bool resumes(const std::string& directory, const RunStart& start);
  // Throws what the constructor would throw, without reading the steps' files. Returns the step
  // that would be resumed, as far as manifests tell.
  static std::optional<ChosenStep> check(const std::string& directory, const RunStart& start);

  const std::string& path() const { return path_; }
  const std::string& run() const { return run_; }  // its identity
  const FenceMark& fence() const { return fence_->mark(); }
  // The step from which the run continues.
  const std::optional<ChosenStep>& resumed() const { return resumed_; }

  // Call when the run has begun; the directory is changed from now on. Warns of steps that were
  // skipped or set aside, and removes unfinished folders of dead jobs.
  void begin();
  // Creates an empty folder for the files that come with a new run's model. It becomes
  // kCompanionFolder when the run has its first step; until then the folder of another run stays.
  std::string make_companions();

  // --- for a save (publish.h) ---

  // Throws Error(invalid_argument) if another writer has taken over the directory (fence.h).
  void require_writer() const { fence_->require(); }
  // Likewise if the step in that folder is a later writer's.
  void require_no_later_writer(const std::string& folder) const;
  // True if a folder of that step may be replaced: it is the run's own, or to be overwritten.
  bool may_replace(int64_t step) const;
  void set_aside(const std::vector<int64_t>& steps);
  // Call once the step is published and `latest` names it.
  void has_published(int64_t step);
  // Removes the run's own steps before its last one, except the newest `keep` - 1 of them and the
  // best; 0: removes none. Never throws: failures are warnings.
  void prune(int keep);
  // Makes the link `best` point to that step, which must be published.
  void set_best(int64_t step);
  // Validation loss in the best step's state (kValidationLoss); infinity if there is none.
  double best_loss() const;

 private:
  void remove_step(int64_t step) const;
  double loss_of(int64_t step) const;
  bool is_of_later_writer(const std::string& folder) const;
  void replace_companions();

  std::string path_;
  std::string run_;
  std::optional<DirectoryLock> lock_;
  std::optional<Fence> fence_;
  std::optional<ChosenStep> resumed_;
  std::vector<int64_t> own_;          // ascending
  std::optional<int64_t> best_;       // one of own_
  std::vector<int64_t> overwritten_;  // until the run has its first step
  bool is_new_ = true;                // and has no step yet
  std::string companions_;            // folder for files that come with its model; empty: none
  std::string aside_;                 // folder for steps set aside; empty: none yet
};

}  // namespace tutti::training
