// The directory of one run, locked while a job works in it. Rank 0 owns the object.
//
//   new run             requires a directory without steps
//   --overwrite         existing steps are removed once the new run has its first complete step
//   --resume [STEP]     continues the run from the newest complete step [up to STEP]
//   --resume auto       resumes if there are steps, complete or not; otherwise starts a new run
//
// A resumed run continues from one step. All other steps are set aside, which means moved to
// DIR/set-aside-N/, where they stay until a user removes them. These are later steps of the same
// run (damaged, or abandoned by --resume STEP) and steps of other runs. The steps that remain in
// the directory therefore belong to one run and follow each other. Only --overwrite and prune()
// delete complete steps.
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
  bool or_new = false;          // true: start a new run if there is nothing to resume
  std::optional<int64_t> step;  // step to resume; unset: the newest step
  bool overwrite = false;       // true: a new run replaces existing steps
  // false: the caller (an import) has no option --resume that an error could suggest
  bool resumable = true;
};

// Key of the validation loss in a checkpoint's state. The state has it only if the loss was known.
inline constexpr const char* kValidationLoss = "validation_loss";

// Folder in a run's directory for the files that came with its model; exports include them.
inline constexpr const char* kCompanionFolder = "hugging-face";

class RunDirectory {
 public:
  // Creates and locks the directory, becomes its writer (fence.h) and chooses the step to resume.
  // Changes no steps. `history` lists the writers that this process continues, if its job has lost
  // ranks. `check` verifies the files of a step to resume. Throws Error(invalid_argument) if the
  // directory belongs to another run or job, is a step's own folder, has nothing to resume, or was
  // written to by another part of the job in `history`; Error(system) if it cannot be written.
  RunDirectory(std::string directory, const RunStart& start, WriterHistory history = {},
               const StepCheck& check = &Checkpoint::verify_alone);
  // Returns true if this start resumes a run.
  static bool resumes(const std::string& directory, const RunStart& start);
  // Throws what the constructor would throw, except errors of the fence and of the steps' tensor
  // files, which it does not read. Creates the directory for a new run. Returns the step that would
  // be resumed according to the manifests, or nothing for a new run.
  static std::optional<ChosenStep> check(const std::string& directory, const RunStart& start);

  const std::string& path() const { return path_; }
  const std::string& run() const { return run_; }  // Returns the ID of the run.
  const FenceMark& fence() const { return fence_->mark(); }
  // Returns the step from which the run continues; empty for a new run.
  const std::optional<ChosenStep>& resumed() const { return resumed_; }

  // Call when the run begins. Sets steps aside, warns about steps that were skipped or set aside,
  // and removes unfinished folders of dead jobs. No step is moved or removed before this call.
  void begin();
  // Creates and returns an empty folder for the files that come with a new run's model. The folder
  // becomes kCompanionFolder when the run has its first step. Until then the folder of the previous
  // run stays.
  std::string make_companions();

  // The functions below serve a save (publish.h).

  // Throws Error(invalid_argument) if another writer has taken over the directory (fence.h).
  void require_writer() const { fence_->require(); }
  // Throws Error(invalid_argument) if the step in `folder` was published by a later writer.
  void require_no_later_writer(const std::string& folder) const;
  // Returns true if the folder of `step` may be replaced, because the step belongs to this run or
  // to a run that is to be overwritten.
  bool may_replace(int64_t step) const;
  void set_aside(const std::vector<int64_t>& steps);
  // Call once the step is published and `latest` names it.
  void has_published(int64_t step);
  // Removes older steps of the run. Keeps the newest `keep` steps and the best one; with `keep` =
  // 0, keeps all. Never throws: failures are warnings.
  void prune(int keep);
  // Makes the link `best` point to `step`, which must be published.
  void set_best(int64_t step);
  // Returns the validation loss in the best step's state (kValidationLoss), or infinity if there is
  // none.
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
  std::vector<int64_t> own_;     // the run's steps, ascending
  std::optional<int64_t> best_;  // the best step; one of own_
  // steps of the previous run, kept until the new run has its first step
  std::vector<int64_t> overwritten_;
  bool is_new_ = true;      // true while a new run has no step yet
  std::string companions_;  // folder for the files of a new run's model; empty if there is none
  std::string aside_;       // folder for steps set aside; empty until the first step is set aside
};

}  // namespace tutti::training
