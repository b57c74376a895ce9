// The fence of a run's directory: the right to publish steps there.
//
// When a job loses ranks it continues with the remaining members, and a network partition may leave
// two such groups. A file lock cannot exclude the second group on a file system whose locks are
// local to a host. The directory therefore names its writer in files that are created exclusively
// and never changed:
//
//   fence-00000001   {"number": 1, "start": S, "epoch": 0, "digest": D0}   the job's first members
//   fence-00000002   {"number": 2, "start": S, "epoch": 1, "digest": D1}   the survivors
//
// The file with the highest number names the writer. A group of ranks takes over by creating the
// file with the next number. Only one group can create that file. A group tries only if its ranks
// belonged to the previous writer, or if it is a new start of the job, which holds the directory's
// lock. A former writer reads the fence before it publishes a step and then fails. A writer never
// replaces or removes a step that has a higher number than its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "training/checkpoint/writer.h"

namespace tutti::training {

inline constexpr const char* kFencePrefix = "fence-";

class Fence {
 public:
  // Makes the last writer of `history` the writer of the directory, unless it is already.
  // `published`: highest fence number of the steps in the directory; a new fence gets a higher one.
  // Throws Error(invalid_argument) if the directory belongs to a writer that is not in `history`,
  // unless that writer is of another start of the job and no writer in `history` has written to the
  // directory; Error(system) if the directory cannot be written.
  Fence(std::string directory, WriterHistory history, uint64_t published);

  const FenceMark& mark() const { return mark_; }
  // Reads the fence again and throws Error(invalid_argument) if another writer has taken over.
  void require() const;

 private:
  bool may_follow(const Writer& writer) const;
  Error taken_by(const FenceMark& now) const;
  void create(uint64_t number) const;
  void remove_older() const;

  std::string directory_;
  WriterHistory history_;
  FenceMark mark_;
};

// Returns the writer that a directory names, or nothing if it has no fence.
std::optional<FenceMark> read_fence(const std::string& directory);

}  // namespace tutti::training
