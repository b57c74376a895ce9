// What a rank sleeps on while it waits for others: one for all its communicators and transports.
//
// Where all that is waited for comes through one region of shared memory, this is a word there (a
// futex). Otherwise it is descriptors, in one ppoll(): the sockets, or what other providers have,
// and one datagram socket by which the peers in shared memory ring, whichever region they wrote to.
//
// One thread sleeps at a time: begin(), then add what ends the sleep, sleep(), end(). Any thread
// may wake it.
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
  // `name` is that of an abstract unix socket, by which others ring. Without one there are no
  // others and nobody sleeps.
  explicit WaitSet(const std::string& name);

  const std::string& name() const { return name_; }

  // From here on wake() is not lost.
  void begin();
  // What the transports are to add; descriptors unless said otherwise.
  void choose(bool on_descriptors) { on_descriptors_ = on_descriptors; }
  bool on_descriptors() const { return on_descriptors_; }
  void add(int fd, short events) { descriptors_.push_back({fd, events, 0}); }
  // For what has no descriptor.
  void no_longer_than(std::chrono::microseconds time) { longest_ = std::min(longest_, time); }
  // Sleeps on nothing else; whoever wakes adds one to the word.
  void add_word(std::atomic<uint32_t>& word, uint32_t value);
  // False when `at_most` passed before anything came.
  bool sleep(std::chrono::microseconds at_most);
  void end();

  // Any thread. Costs a look where nobody sleeps.
  void wake();
  bool in_use() const { return in_use_.load(); }
  // Ends the sleep of whoever has that name, or its next one. Errors are not told.
  void ring(const std::string& name) const;

 private:
  bool sleep_on_word(std::chrono::microseconds at_most);
  bool sleep_on_descriptors(std::chrono::microseconds at_most);

  Fd bell_;  // datagram socket
  const std::string name_;
  std::atomic<bool> in_use_{false};
  bool on_descriptors_ = true;  // the sleeper's, as is the next
  std::vector<pollfd> descriptors_;
  std::chrono::microseconds longest_ = std::chrono::microseconds::max();

  std::mutex mutex_;  // guards what follows
  bool woken_ = false;
  std::atomic<uint32_t>* word_ = nullptr;
  uint32_t value_ = 0;  // that the word had
};

// For whoever changes a word that somebody may sleep on.
void wake_sleepers(std::atomic<uint32_t>& word);

}  // namespace tutti
