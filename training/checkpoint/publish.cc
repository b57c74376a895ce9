#include "training/checkpoint/publish.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

const std::string& made(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw system_error(cat("cannot make the directory ", directory), error.value(),
                       {.remedy = "name a directory in a place that you may write"});
  }
  return directory;
}

// What cannot be removed takes up space and no more.
void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log(LogLevel::warning, cat("cannot remove ", path, ": ", error.message()));
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

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory)
    : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!directory_) throw system_error(cat("cannot open ", directory), errno);
  held_ = ::flock(directory_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno == EWOULDBLOCK) {
    throw Error(ErrorCode::invalid_argument, cat("another run is saving into ", directory),
                {.remedy = "give each run a directory of its own"});
  }
}

DirectoryLock::~DirectoryLock() {
  // A process that was forked meanwhile would keep it otherwise.
  if (held_) ::flock(directory_.get(), LOCK_UN);
}

Publication::Publication(const std::string& directory, int64_t step)
    : directory_(directory), step_(step), lock_(made(directory)) {
  if (step < 0) throw Error(ErrorCode::invalid_argument, cat("there is no step ", step));
  // Who holds the lock knows that all of these were left.
  if (lock_.held()) remove_leftovers(directory_);
  folder_ = cat(directory_, '/', temporary_name(step));
  if (::mkdir(folder_.c_str(), 0777) != 0) {
    throw system_error(
        cat("cannot make the directory ", folder_), errno,
        {.remedy = "name a directory that you may write, on a disk with some space"});
  }
}

Publication::~Publication() {
  if (!published_) remove_folder(folder_);
}

void Publication::publish(std::string_view manifest,
                          const std::function<void(std::string_view)>& at_phase) {
  OutputFile file(cat(folder_, '/', kManifestFile));
  file.write(manifest);
  file.finish();
  sync_directory(folder_);
  at_phase("manifest written");
  give_name();
  sync_directory(directory_);
  at_phase("named");
  replace_file(cat(directory_, '/', kLatestFile), step_name(step_) + "\n");
  sync_directory(directory_);
  published_ = true;
  at_phase("published");
}

// A step that is there already changes places with the new one, so that none is missing at any
// moment.
void Publication::give_name() const {
  const std::string name = cat(directory_, '/', step_name(step_));
  std::error_code error;
  const unsigned exchange = fs::exists(name, error) ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, name.c_str(), exchange) == 0) return;
  throw system_error(
      cat("cannot rename ", folder_, " to ", name), errno,
      {.remedy = "where that step exists, remove it or save elsewhere: not every file "
                 "system can replace it without a moment in which it is missing"});
}

void Publication::prune(int keep) const {
  remove_folder(folder_);  // the old one of the same step, if there was one
  if (keep < 1) return;
  std::vector<int64_t> steps = steps_in(directory_);
  std::erase_if(steps, [&](int64_t step) { return step > step_; });
  const size_t excess = steps.size() - std::min(steps.size(), static_cast<size_t>(keep));
  for (size_t i = 0; i < excess; ++i) remove_step(steps[i]);
}

// By way of another name: no step is ever there in part.
void Publication::remove_step(int64_t step) const {
  const std::string doomed = cat(directory_, '/', temporary_name(step));
  if (::rename(cat(directory_, '/', step_name(step)).c_str(), doomed.c_str()) == 0) {
    remove_folder(doomed);
  } else {
    log(LogLevel::warning, cat("cannot remove ", step_name(step), " from ", directory_));
  }
}

}  // namespace tutti::training
