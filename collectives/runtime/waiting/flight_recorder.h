// Records the last collective calls of this rank on one communicator. Calls are numbered from 1 to
// 2^32 - 1, then again from 1. The thread that makes progress writes the records. Other threads
// read them at any time: the control thread to answer stalled peers, and any thread when the
// communicator is aborted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ticks.h"
#include "collectives/runtime/calls/signature.h"

namespace tutti {

struct CallRecord {
  uint32_t call = 0;
  Signature signature;
  Ticks started = 0;
  int64_t took_ns = 0;  // 0: too short to record
  bool finished = false;
};

class FlightRecorder {
 public:
  static constexpr size_t kCalls = 64;

  // Records the start or the end of a call. Single writer at a time.
  void started(uint32_t call, const std::array<uint64_t, 2>& signature_words, Ticks now);
  void finished(uint32_t call, Ticks now);

  // Returns the record of a call; nullopt if the call was not made yet, or its record is
  // overwritten. Thread-safe.
  std::optional<CallRecord> find(uint32_t call) const;
  uint32_t last_started() const { return last_started_.load(std::memory_order_acquire); }
  // Returns the recorded calls, oldest first.
  std::vector<CallRecord> records() const;
  // Returns the oldest unfinished call; nullopt if there is none.
  std::optional<CallRecord> current() const;
  // Returns the last `count` calls, oldest first, one per line.
  std::string history(size_t count) const;

 private:
  // A record under a sequence lock made of atomics: readers never delay the writer.
  struct Entry {
    std::atomic<uint32_t> version{0};  // odd while the entry is being written
    std::atomic<uint32_t> call{0};
    std::array<std::atomic<uint64_t>, 2> signature{};
    std::atomic<Ticks> started{0};
    std::atomic<Ticks> finished{0};  // time of completion; 0: unfinished
  };
  std::array<Entry, kCalls> entries_;
  std::atomic<uint32_t> last_started_{0};
};

}  // namespace tutti
