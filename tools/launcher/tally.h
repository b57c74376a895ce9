// How the ranks of a job have ended so far, and what that says of the job.
#pragma once

#include <cstddef>

namespace tutti::tool {

// The exit code, in a job with spares, of one that was not needed (the setting TUTTI_UNNEEDED_CODE
// of its ranks): it has not failed, but that it waited is no success of the job either.
inline constexpr int kUnneededCode = 119;

class Tally {
 public:
  Tally(int ranks, int min_ranks) : running_(ranks), min_ranks_(min_ranks) {}

  void add_success() { --running_, ++well_, failed_since_ = 0; }
  void add_unneeded() { --running_, ++unneeded_; }
  // Whoever was killed, or lost with a host, says nothing of those that were through before.
  void add_killed(std::ptrdiff_t count) { running_ -= count; }
  void add_failure() { --running_, ++failed_since_; }

  bool anybody_runs() const { return running_ > 0; }

  // Once nobody runs. Who ended well before the last failures may have left too early, so that the
  // others failed, or been through while others failed in their exits: then they are the more.
  bool succeeded() const { return well_ > failed_since_; }

  // Whether failures so far can be done without.
  bool can_succeed() const {
    return running_ + well_ + unneeded_ >= min_ranks_ && (anybody_runs() || succeeded());
  }

 private:
  std::ptrdiff_t running_;
  std::ptrdiff_t min_ranks_;
  std::ptrdiff_t well_ = 0;          // ended with 0
  std::ptrdiff_t failed_since_ = 0;  // by themselves, after the last of these
  std::ptrdiff_t unneeded_ = 0;      // spares
};

}  // namespace tutti::tool
