#include "collectives/program/queue_walk.h"

#include <algorithm>

namespace tutti {

void QueueWalk::reset_queues() {
  const size_t steps = plan_->program.steps.size();
  if (steps == 0) turns_ = 0;
  cursors_.assign(plan_->queues.size(), {});
  done_.assign(std::min(turns_, kWindow) * steps, 0);
  left_.fill(static_cast<uint32_t>(steps));
}

uint32_t QueueWalk::begun(size_t queue) const {
  const std::vector<int32_t>& steps = plan_->queues[queue].steps;
  if (by_words_) {
    return static_cast<uint32_t>(
        std::ranges::count_if(steps, [&](int32_t step) { return (ahead_ & bit(step)) == 0; }));
  }
  const Cursor& cursor = cursors_[queue];
  return cursor.turn * static_cast<uint32_t>(steps.size()) + cursor.index;
}

std::optional<QueueWalk::Next> QueueWalk::next(size_t queue) const {
  const Cursor& cursor = cursors_[queue];
  if (cursor.turn == turns_ || cursor.turn >= oldest_ + kWindow) return {};
  const int32_t step = plan_->queues[queue].steps[cursor.index];
  const std::vector<int32_t>& all = plan_->send_queues[step];
  if (!all.empty() && (all[0] != static_cast<int32_t>(queue) || !is_next_in_all(cursor, step))) {
    return {};
  }
  if (!has_needs(cursor.turn, step)) return {};
  return Next{cursor.turn, step};
}

bool QueueWalk::has_needs(uint32_t turn, int32_t step) const {
  const uint8_t* done = &done_[at(turn, 0)];
  return std::ranges::all_of(plan_->needs_of(step), [&](int32_t need) { return done[need] != 0; });
}

bool QueueWalk::is_next_in_all(const Cursor& cursor, int32_t step) const {
  return std::ranges::all_of(plan_->send_queues[step], [&](int32_t queue) {
    const Cursor& other = cursors_[queue];
    return other.turn == cursor.turn && plan_->queues[queue].steps[other.index] == step;
  });
}

void QueueWalk::begin(size_t queue, int32_t step) {
  const std::vector<int32_t>& all = plan_->send_queues[step];
  if (all.empty()) advance(queue);
  for (const int32_t each : all) advance(each);
}

void QueueWalk::advance(size_t queue) {
  Cursor& cursor = cursors_[queue];
  if (++cursor.index == plan_->queues[queue].steps.size()) cursor = {cursor.turn + 1, 0};
}

void QueueWalk::finish_in_queues(uint32_t turn, int32_t step) {
  const size_t steps = plan_->program.steps.size();
  done_[at(turn, step)] = 1;
  --left_[turn % kWindow];
  while (oldest_ < turns_ && left_[oldest_ % kWindow] == 0) {
    std::fill_n(done_.begin() + static_cast<ptrdiff_t>(at(oldest_, 0)), steps, 0);
    left_[oldest_ % kWindow] = static_cast<uint32_t>(steps);
    ++oldest_;
  }
}

}  // namespace tutti
