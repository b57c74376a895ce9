#include "training/run/feed_queue.h"

#include <utility>

namespace tutti::training {

std::optional<StepFeed> FeedQueue::fetch() {
  const auto before = std::chrono::steady_clock::now();
  std::optional<StepFeed> feed = steps_->next();
  waited_ += std::chrono::steady_clock::now() - before;
  return feed;
}

StepFeed FeedQueue::take() {
  if (why_not_next_) std::rethrow_exception(std::exchange(why_not_next_, nullptr));
  if (next_) return *std::exchange(next_, std::nullopt);
  return fetch().value();
}

void FeedQueue::look_ahead() {
  try {
    next_ = fetch();
  } catch (...) {
    why_not_next_ = std::current_exception();
  }
}

}  // namespace tutti::training
