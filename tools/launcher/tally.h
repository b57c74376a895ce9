// Counts how the ranks of a job ended, and decides whether the job succeeded.
#pragma once

#include <cstddef>

namespace tutti::tool {

// Exit code of an unneeded spare (the setting TUTTI_UNNEEDED_CODE of its ranks). It counts neither
// as a failure nor as a success of the job.
inline constexpr int kUnneededCode = 119;

class Tally {
 public:
  Tally(int ranks, int min_ranks) : running_(ranks), min_ranks_(min_ranks) {}

  void add_success() { --running_, ++well_, failed_since_ = 0; }
  void add_unneeded() { --running_, ++unneeded_; }
  // Removes `count` ranks that were killed or lost with a host. They do not affect the verdict on
  // ranks that ended before.
  void add_killed(std::ptrdiff_t count) { running_ -= count; }
  void add_failure() { --running_, ++failed_since_; }

  bool any_running() const { return running_ > 0; }

  // Returns the verdict once no rank runs. Ranks that exited with 0 before the last failures either
  // left too early, so that the others failed, or had finished while others failed at exit. In the
  // second case they are the majority, and the job has succeeded.
  bool succeeded() const { return well_ > failed_since_; }

  // Returns true if the job can still succeed after the failures so far.
  bool can_succeed() const {
    return running_ + well_ + unneeded_ >= min_ranks_ && (any_running() || succeeded());
  }

 private:
  std::ptrdiff_t running_;
  std::ptrdiff_t min_ranks_;
  std::ptrdiff_t well_ = 0;  // number of ranks that exited with 0
  // number of ranks that failed by themselves after the last rank that exited with 0
  std::ptrdiff_t failed_since_ = 0;
  std::ptrdiff_t unneeded_ = 0;  // number of unneeded spares
};

}  // namespace tutti::tool
