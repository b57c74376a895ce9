// One rank's progress through the queues of its plan: the rule that decides when a step may begin.
// The executor, the proof and the rendezvous check all use it, so the executor runs what was
// proved.
//
//   - The steps of a queue begin in order. A plan that runs for several slices begins them one turn
//     (slice) after another. Queues are independent of each other, but none is more than kWindow
//     turns ahead of the oldest turn with unfinished steps.
//   - A step begins when the steps that it needs are finished.
//   - A send to several peers is in the queue of each, and begins when it is next in all of them.
//
// The caller determines whether a message has arrived and whether there is room for one.
//
// A single turn of few steps is walked with bit masks instead of cursors: one bit per step that has
// not finished and one per step that has not begun.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/program/plan.h"

namespace tutti {

// Result of an attempt to run a step: it must wait, it began and awaits finish(), or it finished.
enum class Attempt : uint8_t { waits, begun, finished };

class QueueWalk {
 public:
  static constexpr uint32_t kWindow = 4;

  // Starts a walk of `turns` turns. `plan` must outlive the walk.
  void reset(const Plan& plan, uint32_t turns) {
    plan_ = &plan;
    turns_ = turns;
    oldest_ = 0;
    by_words_ = turns <= 1 && plan.all_steps != 0;
    if (!by_words_) return reset_queues();
    ahead_ = unfinished_ = turns == 0 ? 0 : plan.all_steps;
  }

  bool ended() const { return oldest_ == turns_; }
  // Calls attempt(turn, step) for each step that may begin. Steps that become possible meanwhile
  // are attempted in this call or in the next one. Returns true if any step began.
  template <typename AttemptStep>
  bool progress(const AttemptStep& attempt) {
    return by_words_ ? progress_words(attempt) : progress_queues(attempt);
  }
  // Calls visit(turn, step) for each step that may begin.
  template <typename Visit>
  void for_each_ready(const Visit& visit) const;
  // Marks a step that had begun as finished, which unblocks the steps that need it.
  void finish(uint32_t turn, int32_t step) {
    by_words_ ? finish_in_words(step) : finish_in_queues(turn, step);
  }
  // Returns how many steps of a queue have begun, summed over turns.
  uint32_t begun(size_t queue) const;
  // Returns true if the step has finished. `turn` must not have ended.
  bool finished(uint32_t turn, int32_t step) const {
    return by_words_ ? (unfinished_ & bit(step)) == 0 : done_[at(turn, step)] != 0;
  }

 private:
  struct Cursor {
    uint32_t turn = 0;
    uint32_t index = 0;  // index into the queue's steps
  };
  struct Next {
    uint32_t turn = 0;
    int32_t step = 0;
  };

  void finish_in_words(int32_t step) {
    unfinished_ &= ~bit(step);
    if (unfinished_ == 0) oldest_ = turns_;
  }
  void reset_queues();
  void finish_in_queues(uint32_t turn, int32_t step);
  template <typename AttemptStep>
  bool progress_words(const AttemptStep& attempt);
  template <typename AttemptStep>
  bool progress_queues(const AttemptStep& attempt);

  static uint64_t bit(int32_t step) { return uint64_t{1} << step; }
  bool may_begin(int32_t step) const {  // for a walk with masks
    const Plan::Before& before = plan_->before[static_cast<size_t>(step)];
    return (before.finished & unfinished_) == 0 && (before.begun & ahead_) == 0;
  }

  size_t at(uint32_t turn, int32_t step) const {
    return (turn % kWindow) * plan_->program.steps.size() + static_cast<size_t>(step);
  }
  // Returns the queue's next step if all steps that it needs are finished. A send to several peers
  // is returned for its first queue only.
  std::optional<Next> next(size_t queue) const;
  // Begins the step: advances each queue that contains it to its next step.
  void begin(size_t queue, int32_t step);
  bool has_needs(uint32_t turn, int32_t step) const;
  bool is_next_in_all(const Cursor& cursor, int32_t step) const;
  void advance(size_t queue);

  const Plan* plan_ = nullptr;
  uint32_t turns_ = 0;
  uint32_t oldest_ = 0;  // the first turn with unfinished steps
  bool by_words_ = false;
  uint64_t unfinished_ = 0;  // mask of unfinished steps
  uint64_t ahead_ = 0;       // mask of steps that have not begun
  // The following members are only for a walk with cursors.
  std::vector<Cursor> cursors_;              // by queue
  std::vector<uint8_t> done_;                // by turn mod kWindow, then by step
  std::array<uint32_t, kWindow> left_ = {};  // number of unfinished steps, by turn mod kWindow
};

template <typename AttemptStep>
bool QueueWalk::progress_words(const AttemptStep& attempt) {
  const uint64_t before = ahead_;
  for (uint64_t rest = ahead_; rest != 0; rest &= rest - 1) {
    const int32_t step = std::countr_zero(rest);
    if (!may_begin(step)) continue;
    const Attempt result = attempt(uint32_t{0}, step);
    if (result == Attempt::waits) continue;
    ahead_ &= ~bit(step);
    if (result == Attempt::finished) finish_in_words(step);
  }
  return ahead_ != before;
}

template <typename AttemptStep>
bool QueueWalk::progress_queues(const AttemptStep& attempt) {
  bool moved = false;
  for (size_t queue = 0; queue < cursors_.size(); ++queue) {
    while (const std::optional<Next> next = this->next(queue)) {
      const Attempt result = attempt(next->turn, next->step);
      if (result == Attempt::waits) break;
      begin(queue, next->step);
      if (result == Attempt::finished) finish_in_queues(next->turn, next->step);
      moved = true;
    }
  }
  return moved;
}

template <typename Visit>
void QueueWalk::for_each_ready(const Visit& visit) const {
  if (by_words_) {
    for (uint64_t rest = ahead_; rest != 0; rest &= rest - 1) {
      const int32_t step = std::countr_zero(rest);
      if (may_begin(step)) visit(uint32_t{0}, step);
    }
    return;
  }
  for (size_t queue = 0; queue < cursors_.size(); ++queue) {
    if (const std::optional<Next> next = this->next(queue)) visit(next->turn, next->step);
  }
}

}  // namespace tutti
