// Counters of a communicator's work. A thread that holds the communicator's mutex writes them; any
// thread may read them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace tutti::internal {

class Tally {
 public:
  explicit Tally(int ranks) : received_(static_cast<size_t>(ranks)) {}

  void add_call(uint64_t bytes) {
    add(calls_, 1);
    add(bytes_, bytes);
  }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Returns the counters of received bytes, indexed by the sender's rank.
  std::atomic<uint64_t>* received() { return received_.data(); }
  uint64_t received(int rank) const {
    return received_[static_cast<size_t>(rank)].load(std::memory_order_relaxed);
  }

 private:
  // Adds to a counter. There is one writer at a time, so no locked read-modify-write is needed.
  static void add(std::atomic<uint64_t>& counter, uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> bytes_{0};
  std::vector<std::atomic<uint64_t>> received_;
};

}  // namespace tutti::internal
