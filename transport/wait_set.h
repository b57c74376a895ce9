// The events on which a rank sleeps while it waits for others. There is one object for all
// communicators and transports of the rank.
//
// If all awaited events come through one region of shared memory, the rank sleeps on a futex word
// there. Otherwise it sleeps in ppoll() on descriptors: the sockets or other providers'
// descriptors, and one datagram socket through which peers in shared memory wake it, for any
// region.
//
// One thread sleeps at a time: begin(), then add the events, sleep(), end(). Any thread may wake
// it.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti {

class WaitSet {
 public:
  // Creates the set. `name`: the abstract unix socket through which peers wake this rank; empty if
  // the rank has no peers, and so never sleeps.
  explicit WaitSet(const std::string& name);

  const std::string& name() const { return name_; }

  // Prepares a sleep: from here on wake() is not lost.
  void begin();
  // Selects the kind of events that transports must add; descriptors by default.
  void choose(bool on_descriptors) { on_descriptors_ = on_descriptors; }
  bool on_descriptors() const { return on_descriptors_; }
  void add(int fd, short events) { descriptors_.push_back({fd, events, 0}); }
  // Bounds the sleep, for events without a descriptor.
  void no_longer_than(std::chrono::microseconds time) { longest_ = std::min(longest_, time); }
  // Makes the thread sleep on this word only, while it has `value`; a waker increments the word.
  void add_word(std::atomic<uint32_t>& word, uint32_t value);
  // Sleeps until an event. Returns false if `at_most` passed without one.
  bool sleep(std::chrono::microseconds at_most);
  void end();

  // Wakes the sleeper. Thread-safe. Costs a fence and a read if no thread sleeps.
  void wake();
  bool in_use() const { return in_use_.load(); }
  // Wakes the present or next sleep of the wait set with that name. Errors are ignored.
  void ring(const std::string& name) const;

 private:
  bool sleep_on_word(std::chrono::microseconds at_most);
  bool sleep_on_descriptors(std::chrono::microseconds at_most);

  Fd bell_;  // datagram socket
  const std::string name_;
  std::atomic<bool> in_use_{false};
  bool on_descriptors_ = true;  // used by the sleeping thread only, like longest_
  std::vector<pollfd> descriptors_;
  std::chrono::microseconds longest_ = std::chrono::microseconds::max();

  std::mutex mutex_;  // guards the following members
  bool woken_ = false;
  std::atomic<uint32_t>* word_ = nullptr;
  uint32_t value_ = 0;  // value of the word when the sleep began
};

// Wakes all sleepers on a word after it has changed.
void wake_sleepers(std::atomic<uint32_t>& word);

}  // namespace tutti
