// One rank's way through the queues of its plan: the rule by which steps may begin. The executor,
// the proof and the rendezvous check all go by it, so that what is proved is what runs.
//
//   - The steps of a queue begin in order, and a plan that is run for several slices begins them
//     turn after turn. Queues are independent of each other, but none is more than kWindow turns
//     ahead of the oldest turn that has steps left.
//   - A step begins when the steps that it needs are finished.
//   - A send to several peers stands in the queue of each and begins when it is next in all of
//     them.
//
// Whether a message has come, or there is room for one, is for the caller to find out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/program/plan.h"

namespace tutti {

class QueueWalk {
 public:
  static constexpr uint32_t kWindow = 4;

  struct Next {
    size_t queue = 0;
    uint32_t turn = 0;
    int32_t step = 0;
  };

  // `plan` must live as long as the walk.
  void reset(const Plan& plan, uint32_t turns);

  size_t queues() const { return cursors_.size(); }
  bool ended() const { return oldest_ == turns_; }
  // The queue's next step, where all that it needs of this rank is finished. A send to several
  // peers is told of its first queue only.
  std::optional<Next> next(size_t queue) const;
  // Its queues go on to the steps behind it.
  void begin(const Next& next);
  // Steps that need it may begin.
  void finish(uint32_t turn, int32_t step);
  // Of a turn that has not ended.
  bool finished(uint32_t turn, int32_t step) const { return done_[at(turn, step)] != 0; }

 private:
  struct Cursor {
    uint32_t turn = 0;
    uint32_t index = 0;  // into the queue's steps
  };

  size_t at(uint32_t turn, int32_t step) const {
    return (turn % kWindow) * plan_->program.steps.size() + static_cast<size_t>(step);
  }
  bool has_needs(uint32_t turn, int32_t step) const;
  bool is_next_in_all(const Cursor& cursor, int32_t step) const;
  void advance(size_t queue);

  const Plan* plan_ = nullptr;
  uint32_t turns_ = 0;
  uint32_t oldest_ = 0;  // the first turn that has not ended
  std::vector<Cursor> cursors_;
  std::vector<uint8_t> done_;                // by turn mod kWindow, then by step
  std::array<uint32_t, kWindow> left_ = {};  // steps that are not finished, by turn mod kWindow
};

}  // namespace tutti
