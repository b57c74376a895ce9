#include "training/checkpoint/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

// Returns the normalized path without a trailing slash. Throws if it is the folder of a step.
std::string checked_path(const std::string& directory) {
  std::string path = without_slash(directory);
  if (path.empty()) path = ".";
  if (!is_step_folder(path)) return path;
  const fs::path parent = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  const std::optional<int64_t> step = parse_step_name(fs::path(path).filename().string());
  throw Error(ErrorCode::invalid_argument,
              cat(path, " is the folder of one step, not the directory of a run"),
              {.remedy = cat("to resume from that step, use --checkpoint ", parent.string(),
                             " --resume ", step ? std::to_string(*step) : "STEP")});
}

void make(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error && ::access(directory.c_str(), W_OK | X_OK) != 0) {
    throw file_error("cannot write into the directory", directory, errno);
  }
  if (error) {
    throw system_error(cat("cannot make the directory ", directory), error.value(),
                       {.remedy = "choose a directory in a writable place"});
  }
}

void refuse_other_run(const std::string& directory, const std::string& run, bool resumable) {
  const std::vector<StepFolder> steps = scan_steps(directory);
  if (steps.empty()) return;
  throw Error(
      ErrorCode::invalid_argument,
      cat(directory, " holds ", describe_runs(steps), "; the new run ", run, " was not started"),
      {.remedy = cat(resumable ? "resume the old run with --resume, use" : "name",
                     " another directory, or replace the old run with --overwrite")});
}

void check_nothing(const Checkpoint&) {}

ChosenStep chosen(const std::string& directory, const RunStart& start, const StepCheck& check) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return choose_step(directory, start.step, check);
  throw Error(ErrorCode::invalid_argument, cat("there is no directory ", directory, " to resume"),
              {.remedy = "check the path, or remove --resume to start a new run there"});
}

void check_options(const RunStart& start) {
  if (!start.resume || !start.overwrite) return;
  throw Error(ErrorCode::invalid_argument, "--resume excludes --overwrite",
              {.remedy = "resume the existing run or replace it"});
}

void remove_leftovers(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> leftovers;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_temporary_name(entry->path().filename().string())) leftovers.push_back(entry->path());
  }
  for (const std::string& path : leftovers) remove_folder(path);
}

// Creates and returns a new folder for steps set aside, a different one at each call.
std::string make_with_temporary(const std::string& directory) {
  for (int i = 1;; ++i) {
    std::string path = cat(directory, "/set-aside-", i);
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) throw file_error("cannot create the directory", path, errno);
  }
}

// Returns the highest fence number of the steps. It is needed because the fence's file may have
// been removed, or steps may have been copied from elsewhere.
uint64_t highest_fence_of_steps(const std::string& directory) {
  uint64_t highest = 0;
  for (const StepFolder& seen : scan_steps(directory)) highest = std::max(highest, seen.fence);
  return highest;
}

void remove_best(const std::string& directory) { ::unlink(cat(directory, '/', kBestLink).c_str()); }

std::string listed(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += cat(text.empty() ? "" : ", ", step_name(step));
  return text;
}

}  // namespace

// Damaged steps also count as a run: with or_new, they prevent the start of a new run.
bool RunDirectory::resumes(const std::string& directory, const RunStart& start) {
  return start.resume && !(start.or_new && steps_in(directory).empty());
}

RunDirectory::RunDirectory(std::string directory, const RunStart& start, WriterHistory history,
                           const StepCheck& check)
    : path_(checked_path(directory)) {
  check_options(start);
  const bool resumed = resumes(path_, start);
  if (resumed) {
    // Reads only the manifests, because the lock needs the ID of the run. The files are checked
    // once the directory is locked.
    run_ = chosen(path_, start, check_nothing).checkpoint.manifest().run;
  } else {
    make(path_);
  }
  if (run_.empty()) run_ = new_run_identity();
  if (history.writers.empty()) history.writers = {{.start = new_run_identity()}};
  lock_.emplace(path_, run_, history);
  if (!resumed && !start.overwrite) refuse_other_run(path_, run_, start.resumable);
  // No other process publishes steps from here on, so the newest step found is final.
  fence_.emplace(path_, std::move(history), highest_fence_of_steps(path_));
  lock_->claim();
  is_new_ = !resumed;
  if (resumed) {
    resumed_ = chosen(path_, start, check);
    own_ = resumed_->own;
    best_ = best_step(path_);
    if (best_ && !std::ranges::binary_search(own_, *best_)) best_.reset();
    // A process may have died between publishing a step and linking it as the best.
    const int64_t last = resumed_->checkpoint.manifest().step;
    if (loss_of(last) < best_loss()) best_ = last;
  } else if (start.overwrite) {
    overwritten_ = steps_in(path_);
  }
}

std::optional<ChosenStep> RunDirectory::check(const std::string& directory, const RunStart& start) {
  const std::string path = checked_path(directory);
  check_options(start);
  const bool resumed = resumes(path, start);
  if (!resumed) make(path);
  DirectoryLock lock(path, "about-to-start");
  lock.claim();
  if (resumed) return chosen(path, start, check_nothing);
  if (!start.overwrite) refuse_other_run(path, new_run_identity(), start.resumable);
  return std::nullopt;
}

void RunDirectory::begin() {
  require_writer();
  remove_leftovers(path_);
  if (!resumed_) return;
  if (best_) {
    set_best(*best_);
  } else {
    remove_best(path_);
  }
  const int64_t step = resumed_->checkpoint.manifest().step;
  for (const ChosenStep::Skipped& skipped : resumed_->skipped) {
    log(LogLevel::warning, cat("skipping ", step_name(skipped.step), ": ", skipped.why));
  }
  // Updates `latest` before moving other steps aside, so that it never names a step that has been
  // moved.
  if (!resumed_->is_latest) replace_file(cat(path_, '/', kLatestFile), step_name(step) + "\n");
  if (resumed_->others.empty()) return;
  set_aside(resumed_->others);
  log(LogLevel::warning, cat("the run continues from step ", step, "; ", listed(resumed_->others),
                             " are not used and were moved to ", aside_));
}

std::string RunDirectory::make_companions() {
  companions_ = cat(path_, '/', temporary_name(0));
  make(companions_);
  return companions_;
}

// Existing companions belong to the model of the replaced run.
void RunDirectory::replace_companions() {
  const std::string name = cat(path_, '/', kCompanionFolder);
  remove_folder(name);
  if (companions_.empty()) return;
  if (::rename(companions_.c_str(), name.c_str()) != 0) {
    throw system_error(cat("cannot rename ", companions_, " to ", name), errno);
  }
  sync_directory(path_);
}

bool RunDirectory::may_replace(int64_t step) const {
  return std::ranges::binary_search(own_, step) || std::ranges::binary_search(overwritten_, step);
}

void RunDirectory::set_aside(const std::vector<int64_t>& steps) {
  if (aside_.empty()) aside_ = make_with_temporary(path_);
  for (const int64_t step : steps) {
    const std::string from = cat(path_, '/', step_name(step));
    std::string to = cat(aside_, '/', step_name(step));
    std::error_code error;
    if (fs::exists(to, error)) to = cat(aside_ = make_with_temporary(path_), '/', step_name(step));
    if (::rename(from.c_str(), to.c_str()) != 0) {
      throw system_error(
          cat("cannot move ", from, " to ", to), errno,
          {.remedy = "move it manually, since it does not belong to the resumed run"});
    }
  }
  sync_directory(aside_);
  sync_directory(path_);
}

void RunDirectory::has_published(int64_t step) {
  own_.insert(std::ranges::lower_bound(own_, step), step);
  own_.erase(std::ranges::unique(own_).begin(), own_.end());
  if (std::exchange(is_new_, false)) replace_companions();
  if (!overwritten_.empty()) remove_best(path_);
  for (const int64_t old : overwritten_) {
    if (old != step) remove_step(old);
  }
  overwritten_.clear();
}

bool RunDirectory::is_of_later_writer(const std::string& folder) const {
  try {
    const Checkpoint checkpoint = Checkpoint::open_alone(folder);
    const Manifest& manifest = checkpoint.manifest();
    const bool has_own_name = manifest.run == run_ || may_replace(manifest.step);
    return has_own_name && manifest.fence.number > fence().number;
  } catch (const Error&) {
    return false;  // unreadable manifest: damaged or missing
  }
}

void RunDirectory::require_no_later_writer(const std::string& folder) const {
  if (!is_of_later_writer(folder)) return;
  require_writer();
  throw Error(
      ErrorCode::invalid_argument, cat("another, later job has published a step in ", path_),
      {.remedy = "check which other job uses the directory, then restart the run with --resume"});
}

void RunDirectory::prune(int keep) {
  if (keep < 1 || own_.size() <= static_cast<size_t>(keep)) return;
  const auto end = own_.end() - keep;
  for (auto step = own_.begin(); step != end; ++step) {
    if (*step != best_) remove_step(*step);
  }
  own_.erase(own_.begin(), end);
  if (best_ && !std::ranges::binary_search(own_, *best_)) own_.insert(own_.begin(), *best_);
}

// Renames a temporary link over the old one, so that the link always exists and points to a
// complete step.
void RunDirectory::set_best(int64_t step) {
  const std::string made = cat(path_, '/', temporary_name(step));
  const std::string name = cat(path_, '/', kBestLink);
  if (::symlink(step_name(step).c_str(), made.c_str()) != 0 ||
      ::rename(made.c_str(), name.c_str()) != 0) {
    throw file_error("cannot create the link", name, errno);
  }
  best_ = step;
}

double RunDirectory::best_loss() const {
  return best_ ? loss_of(*best_) : std::numeric_limits<double>::infinity();
}

double RunDirectory::loss_of(int64_t step) const {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  try {
    const Checkpoint checkpoint = Checkpoint::open(cat(path_, '/', step_name(step)));
    return checkpoint.manifest().state.value(kValidationLoss, kUnknown);
  } catch (const Error&) {
    return kUnknown;  // a damaged step cannot be the best
  }
}

// Renames before removal, so that no partial step is ever visible.
void RunDirectory::remove_step(int64_t step) const {
  const std::string name = cat(path_, '/', step_name(step));
  const std::string doomed = cat(path_, '/', temporary_name(step));
  if (is_of_later_writer(name)) return;
  if (::rename(name.c_str(), doomed.c_str()) == 0) {
    // The step may have been replaced since it was checked.
    if (is_of_later_writer(doomed) && ::rename(doomed.c_str(), name.c_str()) == 0) return;
    remove_folder(doomed);
  } else if (errno != ENOENT) {
    log(LogLevel::warning, cat("cannot remove ", step_name(step), " from ", path_));
  }
}

}  // namespace tutti::training
