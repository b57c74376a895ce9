#include "training/checkpoint/fence.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

// Maximum number of attempts to read or create the fence. An attempt fails only if another writer
// created a fence in the meantime.
constexpr int kMostTurns = 100;

std::string name_of(const std::string& directory, uint64_t number) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%08llu", static_cast<unsigned long long>(number));
  return cat(directory, '/', kFencePrefix, digits);
}

// Returns the numbers of the fence files, ascending.
std::vector<uint64_t> numbers_in(const std::string& directory) {
  std::vector<uint64_t> numbers;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = cat(directory, '/', entry->path().filename().string());
    const std::string digits = path.substr(path.rfind('-') + 1);
    uint64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (path == name_of(directory, number)) numbers.push_back(number);
  }
  if (error) throw system_error(cat("cannot list ", directory), error.value());
  std::ranges::sort(numbers);
  return numbers;
}

FenceMark parse(const std::string& text, const std::string& path) {
  try {
    return fence_mark_of(Json::parse(text));
  } catch (const Error& error) {
    throw Error(
        ErrorCode::invalid_argument,
        cat(path, " does not identify the writer of this directory: ", error.what()),
        {.cause = "the file is damaged", .remedy = "remove it when no job uses the directory"});
  }
}

[[noreturn]] void give_up(const std::string& directory) {
  throw Error(ErrorCode::invalid_argument, cat("several jobs write to ", directory),
              {.cause = "the jobs were started in this directory at the same time",
               .remedy = "use a separate directory for each job"});
}

}  // namespace

std::optional<FenceMark> read_fence(const std::string& directory) {
  for (int turn = 0; turn < kMostTurns; ++turn) {
    const std::vector<uint64_t> numbers = numbers_in(directory);
    if (numbers.empty()) return std::nullopt;
    const std::string path = name_of(directory, numbers.back());
    std::error_code error;
    try {
      return parse(read_text(path), path);
    } catch (const Error&) {
      if (fs::exists(path, error)) throw;  // if the file is gone, a higher one has replaced it
    }
  }
  give_up(directory);
}

Fence::Fence(std::string directory, WriterHistory history, uint64_t published)
    : directory_(std::move(directory)), history_(std::move(history)) {
  if (history_.writers.empty()) throw Error(ErrorCode::internal, "a fence requires a writer");
  mark_.writer = history_.writers.back();
  for (int turn = 0; turn < kMostTurns; ++turn) {
    const std::optional<FenceMark> now = read_fence(directory_);
    if (now && now->writer == mark_.writer) {
      mark_.number = now->number;
      remove_older();
      return;
    }
    if (now && !may_follow(now->writer)) throw taken_by(*now);
    // has no effect if another writer creates that file first
    create(std::max(now ? now->number : 0, published) + 1);
  }
  give_up(directory_);
}

void Fence::require() const {
  const std::optional<FenceMark> now = read_fence(directory_);
  if (now == mark_) return;
  if (now) throw taken_by(*now);
  throw Error(ErrorCode::invalid_argument,
              cat("the fence of ", directory_, " was removed while the run writes there"),
              {.cause = "another process removed the file or the directory",
               .remedy = "restart the run with --resume"});
}

// Returns true if this writer may take over from `writer`. A new start holds the directory's lock,
// so earlier starts have ended. Survivors of the same start may take over only from members to
// which they belonged.
bool Fence::may_follow(const Writer& writer) const {
  const bool is_of_another_start = writer.start != mark_.writer.start;
  return history_.has(writer) || (is_of_another_start && !history_.has_written);
}

Error Fence::taken_by(const FenceMark& now) const {
  const bool is_of_this_job = now.writer.start == mark_.writer.start;
  return {
      ErrorCode::invalid_argument,
      cat(directory_, " belongs to ", is_of_this_job ? "another part of this job" : "another job",
          ", which continued without these ranks: its writer is ", in_words(now.writer),
          ", and these ranks are ", in_words(mark_.writer)),
      {.cause = is_of_this_job ? "the network was partitioned, and the other part continued first"
                               : "the run was restarted while this job was still running",
       .remedy = "no published step is lost; see the output of the other ranks, or restart the run "
                 "with --resume when they have ended"}};
}

// Creates the fence file with this number, unless it exists. The file is complete before it gets
// its name.
void Fence::create(uint64_t number) const {
  const std::string name = name_of(directory_, number);
  const std::string fresh = cat(directory_, '/', temporary_name(0));
  OutputFile file(fresh);
  file.write(to_json(FenceMark{number, mark_.writer}).dump() + '\n');
  file.finish();
  int reason = ::link(fresh.c_str(), name.c_str()) == 0 ? 0 : errno;
  if (reason == EPERM || reason == ENOTSUP || reason == ENOSYS || reason == EMLINK) {
    // On file systems without hard links, renames instead.
    reason = ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE) == 0
                 ? 0
                 : errno;
  }
  ::unlink(fresh.c_str());
  // ENOENT means that another starting writer has removed the temporary file.
  if (reason != 0 && reason != EEXIST && reason != ENOENT) {
    throw file_error("cannot create", name, reason);
  }
  sync_directory(directory_);
}

void Fence::remove_older() const {
  for (const uint64_t number : numbers_in(directory_)) {
    if (number < mark_.number) ::unlink(name_of(directory_, number).c_str());
  }
}

}  // namespace tutti::training
