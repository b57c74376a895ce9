// What a rank does, for whoever watches its job (watchers.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti {

// Of a communicator, or of all of a rank's together. Ranks are those of the job.
struct Activity {
  uint64_t calls = 0;                // begun, messages among them
  uint64_t bytes = 0;                // that these calls were about
  int64_t waited_ns = 0;             // while nothing moved
  std::string current;               // the call under way for the longest time; empty: none
  int64_t current_ns = 0;            // since it began
  std::vector<int> waits_for;        // whom it needs, once it has waited for long
  std::map<int, uint64_t> received;  // bytes, by sender

  // Another communicator's.
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
