// Detects a straggler: a rank that is late in several calls in a row.
#pragma once

#include <cstdint>

namespace tutti::internal {

// Counts successive calls in which this rank waited long for the same other rank.
class Lateness {
 public:
  static constexpr uint32_t kCalls = 3;

  // Returns true if `call` is the call recorded last.
  bool knows(uint32_t call) const { return call == last_; }
  // Records that `rank` was late in `call`; returns the number of such calls in a row.
  uint32_t note(uint32_t call, int rank) {
    in_a_row_ = rank == rank_ && call == last_ + 1 ? in_a_row_ + 1 : 1;
    if (in_a_row_ == 1) say_at_ = kCalls;
    rank_ = rank;
    last_ = call;
    return in_a_row_;
  }
  // Returns true if a report is due: after kCalls calls in a row, then after ten times as many, and
  // so on.
  bool is_news() {
    if (in_a_row_ < say_at_) return false;
    say_at_ *= 10;
    return true;
  }

 private:
  int rank_ = -1;
  uint32_t last_ = 0;  // number of the call recorded last
  uint32_t in_a_row_ = 0;
  uint32_t say_at_ = kCalls;
};

}  // namespace tutti::internal
