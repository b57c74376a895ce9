// What a rank did when: a record of spans of time, and a file of all ranks' records that Perfetto
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

// `step` is around all that a step does.
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

// The last kMost events, of about 100 bytes each: add() does nothing else. One thread at a time.
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
  uint64_t dropped() const { return dropped_; }  // earlier ones

 private:
  std::deque<TraceEvent> events_;
  uint64_t dropped_ = 0;
};

// From construction to destruction; no trace, no event.
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
// Trace Event Format, JSON object form). A rank is a process named by Communicator::describe(), its
// thread 0 has what the rank itself does, and threads 1 and up have its communication, on as many
// as were under way at once.
//
// Times are in microseconds from the first event of all. Ranks of one machine share its clock; the
// clocks of two machines are aligned by the end of a barrier, about a message's travel time apart.
// Throws Error(system) on every rank if the file cannot be written.
void write_trace(Communicator& communicator, const Trace& trace, const std::string& path);

// For a run that failed, when nobody may answer any more: each rank by itself writes its own events
// to a file beside that one ("trace.json": "trace.rank-3.json"). Times are this machine's clock's.
// What cannot be written is a warning.
void write_own_trace(const Communicator& communicator, const Trace& trace,
                     const std::string& path) noexcept;

}  // namespace tutti::training
