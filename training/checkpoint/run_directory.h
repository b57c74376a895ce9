// The directory of one run, held for as long as a job works in it. Rank 0 has it.
//
//   new run             in a directory without steps; else refused
//   --overwrite         the steps that are there are removed when the new run has its first whole
//   one
//   --resume [STEP]     goes on from the newest whole step [up to STEP], with its identity
//   --resume auto       the same where there are steps, whole or not, else a new run
//
// A resumed run goes on from a step, and what else is there, which is later steps of its own
// (damaged, or of a future that was given up by --resume STEP) and steps of other runs, is set
// aside: moved to DIR/set-aside-N/, where it stays until somebody removes it. So the steps in a
// directory are one run's, in one line, and no whole step is ever lost but by --overwrite.
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
  bool or_new = false;          // a resume of nothing is a new run
  std::optional<int64_t> step;  // to resume at; none: the newest
  bool overwrite = false;       // of a new run
  bool resumable = true;        // false: what fills the directory (an import) has no --resume
};

// In a checkpoint's state: the loss on what was held out, where that was known.
inline constexpr const char* kValidationLoss = "validation_loss";

// In a run's directory: the files that came with its model, which go with it when it is exported.
inline constexpr const char* kCompanionFolder = "hugging-face";

class RunDirectory {
 public:
  // Makes the directory, locks it, and says where the run goes on; changes nothing else. Throws
  // Error(invalid_argument) where the directory is another run's, another job's, a step's own
  // folder or has nothing to resume, and Error(system) where it cannot be written.
  // `history`: what the writer goes on from, where it is what deaths have left of a job; then a
  // directory that is written by a part of the job that has gone on without it is refused as well.
  // `check`: how the files of a step to resume are verified.
  RunDirectory(std::string directory, const RunStart& start, WriterHistory history = {},
               const StepCheck& check = &Checkpoint::verify_alone);
  // Whether that goes on with a run.
  static bool resumes(const std::string& directory, const RunStart& start);
  // Throws what the constructor would, but does not read the steps' files. Returns the step that
  // would be resumed, as far as descriptions tell.
  static std::optional<ChosenStep> check(const std::string& directory, const RunStart& start);

  const std::string& path() const { return path_; }
  const std::string& run() const { return run_; }  // its identity
  const FenceMark& fence() const { return fence_->mark(); }
  // Where it goes on.
  const std::optional<ChosenStep>& resumed() const { return resumed_; }

  // The run has begun: from now on the directory is changed. Says what was skipped and set aside,
  // and removes unfinished folders of jobs that died.
  void begin();
  // An empty folder for the files that come with a new run's model. When the run has its first step
  // it becomes kCompanionFolder; until then what another run has there stays.
  std::string make_companions();

  // --- for a save (publish.h) ---

  // Throws Error(invalid_argument) where another writer has the directory by now (fence.h).
  void require_writer() const { fence_->require(); }
  // The same where the step in that folder is of a later writer.
  void require_no_later_writer(const std::string& folder) const;
  // Whether a folder of that step may be replaced: it is the run's own, or to be overwritten.
  bool may_replace(int64_t step) const;
  void set_aside(const std::vector<int64_t>& steps);
  // The step is there, and `latest` names it.
  void has_published(int64_t step);
  // Removes the run's own steps before its last one, all but `keep` - 1 of them and the best; 0:
  // none. Never throws: what cannot be removed is a warning.
  void prune(int keep);
  // From now on the link `best` leads to that step, which is published.
  void set_best(int64_t step);
  // What the best step's state says of its loss (kValidationLoss); infinity where there is none.
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
  std::optional<int64_t> best_;       // of these
  std::vector<int64_t> overwritten_;  // until the run has its first step
  bool is_new_ = true;                // and has no step yet
  std::string companions_;  // the folder for what comes with its model; empty: nothing does
  std::string aside_;       // the folder of what was set aside; empty: none yet
};

}  // namespace tutti::training
