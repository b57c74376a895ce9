// Statistics of a rank, for observers of its job (watchers.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti {

// Statistics of one communicator, or the sums of all communicators of a rank. Ranks are those of
// the job.
struct Activity {
  uint64_t calls = 0;          // started calls, messages included
  uint64_t bytes = 0;          // payload bytes of the started calls
  int64_t waited_ns = 0;       // time without progress
  std::string current;         // the call in flight for the longest time; empty: none
  int64_t current_ns = 0;      // time since that call started
  std::vector<int> waits_for;  // ranks that the current call needs, once it has waited for long
  std::map<int, uint64_t> received;  // bytes received, by sender

  // Adds another communicator's statistics.
  void add(const Activity& other) {
    calls += other.calls;
    bytes += other.bytes;
    waited_ns += other.waited_ns;
    for (const auto& [sender, more] : other.received) received[sender] += more;
    if (other.current.empty() || other.current_ns < current_ns) return;
    current = other.current;
    current_ns = other.current_ns;
    waits_for = other.waits_for;
  }
};

}  // namespace tutti
