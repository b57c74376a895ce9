// Creates items in background threads before they are needed.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/start_thread.h"
#include "base/text.h"

namespace tutti::training {

// Provides the items make(first), make(first + 1), ... make(end - 1) in this order. `workers`
// threads create them in advance. At most `depth` items exist or are being created at any time,
// besides those that the caller has received.
//
// make() is called concurrently, once for every index. With 0 workers next() itself creates the
// item. One thread at a time may call next(). The destructor waits only for items that are being
// created.
template <typename Item>
class Loader {
 public:
  using Make = std::function<Item(uint64_t index)>;

  // Starts the threads. Throws Error(invalid_argument) if `end` is before `first`, `workers` is
  // negative, or `depth` is below 1.
  Loader(Make make, uint64_t first, uint64_t end, int workers, int depth);
  ~Loader() { stop(); }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Blocks until the next item is ready and returns it; returns nothing after the last one. Throws
  // what make() threw for that item; the next call then continues with the item after it.
  std::optional<Item> next();

  // Returns the index of the item that next() returns next, which is the only state needed to
  // resume.
  uint64_t position() const { return next_; }

 private:
  // monostate: the item has not been created yet
  using Slot = std::variant<std::monostate, Item, std::exception_ptr>;

  Slot& slot_of(uint64_t index) { return slots_[index % slots_.size()]; }
  bool may_begin() const { return begun_ < end_ && begun_ - next_ < slots_.size(); }
  Slot attempt(uint64_t index) const noexcept;
  void work();
  void stop();

  const Make make_;
  const uint64_t end_;
  std::mutex mutex_;                 // guards the members below; only next() changes next_
  std::condition_variable room_;     // signals that a worker may begin an item, or must stop
  std::condition_variable arrived_;  // signals that the item for which next() waits is ready
  uint64_t next_;                    // index of the first item not returned yet
  uint64_t begun_;                   // index of the first item that no worker has begun
  bool stopping_ = false;
  std::vector<Slot> slots_;  // item i of [next_, next_ + depth) is at index i modulo depth
  std::vector<std::thread> workers_;
};

template <typename Item>
Loader<Item>::Loader(Make make, uint64_t first, uint64_t end, int workers, int depth)
    : make_(std::move(make)), end_(end), next_(first), begun_(first) {
  if (end < first || workers < 0 || depth < 1) {
    throw Error(ErrorCode::invalid_argument,
                cat("cannot load items ", first, " to ", end, " with ", workers,
                    " workers at depth ", depth),
                {.remedy = "use an end that is not before the first item, at least 0 workers and a "
                           "depth of at least 1"});
  }
  slots_.resize(static_cast<size_t>(depth));
  try {
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(start_thread("loading data", [this] { work(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

template <typename Item>
std::optional<Item> Loader<Item>::next() {
  if (next_ == end_) return std::nullopt;
  if (workers_.empty()) return make_(next_++);
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(next_);
  arrived_.wait(lock, [&] { return slot.index() != 0; });
  Slot made = std::exchange(slot, Slot());
  ++next_;
  lock.unlock();
  room_.notify_one();
  if (const auto* error = std::get_if<std::exception_ptr>(&made)) std::rethrow_exception(*error);
  return std::get<Item>(std::move(made));
}

template <typename Item>
typename Loader<Item>::Slot Loader<Item>::attempt(uint64_t index) const noexcept {
  try {
    return Slot(std::in_place_type<Item>, make_(index));
  } catch (...) {
    return std::current_exception();
  }
}

template <typename Item>
void Loader<Item>::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [&] { return stopping_ || begun_ == end_ || may_begin(); });
    if (stopping_ || begun_ == end_) return;
    const uint64_t index = begun_++;
    lock.unlock();
    Slot made = attempt(index);
    lock.lock();
    slot_of(index) = std::move(made);
    if (index == next_) arrived_.notify_one();
  }
}

template <typename Item>
void Loader<Item>::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

}  // namespace tutti::training
