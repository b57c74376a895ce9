// Whether it is always the same rank that comes late.
#pragma once

#include <cstdint>

namespace tutti::internal {

// Of the calls in which this rank has waited for long.
class Lateness {
 public:
  static constexpr uint32_t kCalls = 3;

  // This call's wait was noted already.
  bool knows(uint32_t call) const { return call == last_; }
  // In `call` `rank` was late: in so many calls in a row by now.
  uint32_t note(uint32_t call, int rank) {
    in_a_row_ = rank == rank_ && call == last_ + 1 ? in_a_row_ + 1 : 1;
    if (in_a_row_ == 1) say_at_ = kCalls;
    rank_ = rank;
    last_ = call;
    return in_a_row_;
  }
  // Worth saying, after kCalls calls and at ever longer intervals.
  bool is_news() {
    if (in_a_row_ < say_at_) return false;
    say_at_ *= 10;
    return true;
  }

 private:
  int rank_ = -1;
  uint32_t last_ = 0;  // call
  uint32_t in_a_row_ = 0;
  uint32_t say_at_ = kCalls;
};

}  // namespace tutti::internal
