// The samples of a run's steps, fetched up to one step ahead.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "training/data/loader.h"
#include "training/run/feed.h"

namespace tutti::training {

class FeedQueue {
 public:
  // Begins with the step after the first `done` steps.
  FeedQueue(const Feed& feed, uint64_t done) : steps_(feed.steps_from(done)) {}

  // Returns the next step's samples. Blocks until they are read, and throws what reading them
  // threw.
  StepFeed take();
  // Fetches the samples of the step after the one that was taken. Blocks like take(). If fetching
  // fails, the next take() throws the error, so that the step that was taken is not affected.
  void look_ahead();
  // Returns the samples that look_ahead() fetched, or null if there are none.
  const StepFeed* ahead() const { return next_ ? &*next_ : nullptr; }
  // Returns the time for which take() and look_ahead() have blocked so far.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  std::optional<StepFeed> fetch();

  std::unique_ptr<Loader<StepFeed>> steps_;
  std::optional<StepFeed> next_;
  std::exception_ptr why_not_next_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace tutti::training
