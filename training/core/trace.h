// Timeline of a rank: records spans of time, and writes all ranks' records to a file that Perfetto
// (ui.perfetto.dev) and chrome://tracing open.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace tutti::training {

// Kinds of spans. A `step` span encloses everything that a step does.
enum class TraceCategory { compute, communication, data, optimizer, bubble, step };

struct TraceArgument {
  const char* name = "";  // a literal
  int64_t value = 0;
};

struct TraceEvent {
  using Time = std::chrono::steady_clock::time_point;

  std::string name;
  TraceCategory category = TraceCategory::compute;
  Time start;
  Time end;
  std::vector<TraceArgument> arguments;
};

// Ring buffer of the last kMost events, of about 100 bytes each. One thread at a time may use it.
class Trace {
 public:
  static constexpr size_t kMost = size_t{1} << 18;

  void add(TraceEvent event) {
    if (events_.size() == kMost) {
      events_.pop_front();
      ++dropped_;
    }
    events_.push_back(std::move(event));
  }
  const std::deque<TraceEvent>& events() const { return events_; }
  // Returns the number of old events that were removed to make room for new ones.
  uint64_t dropped() const { return dropped_; }

 private:
  std::deque<TraceEvent> events_;
  uint64_t dropped_ = 0;
};

// Records an event that lasts from construction to destruction of this object; with a null trace
// records nothing.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, std::string name, TraceCategory category)
      : trace_(trace), name_(std::move(name)), category_(category) {}
  ~TraceSpan() {
    if (trace_ == nullptr) return;
    trace_->add({std::move(name_), category_, start_, std::chrono::steady_clock::now(), {}});
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  std::string name_;
  TraceCategory category_;
  TraceEvent::Time start_ = std::chrono::steady_clock::now();
};

// Collective: rank 0 writes all ranks' events to `path`, in Chrome's trace event format (Google:
// Trace Event Format, JSON object form). A rank is a process named by Communicator::describe(); its
// thread 0 has the rank's own work, and threads 1 and up have its communication, one for each
// operation in flight at once.
//
// Times are in microseconds since the first event of all ranks. Ranks of one machine share its
// clock; the clocks of two machines are aligned by the end of a barrier, to about a message's
// latency. Throws Error(system) on every rank if the file cannot be written.
void write_trace(Communicator& communicator, const Trace& trace, const std::string& path);

// Writes this rank's events to a file of its own beside `path`: "trace.rank-3.json" for
// "trace.json" on rank 3. Use it after a failed run, in which other ranks might not respond. Times
// are those of this machine's clock, not aligned with other machines. Logs a warning if writing
// fails.
void write_own_trace(const Communicator& communicator, const Trace& trace,
                     const std::string& path) noexcept;

}  // namespace tutti::training
