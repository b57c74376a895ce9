// Records NCCL's activity on one communicator to a file in Chrome's trace event format, as
// training/core/trace.h writes it. A rank is shown as a process; groups, calls and the proxy's work
// have threads of their own.
//
// Times are in microseconds of this machine's steady clock, so files of the ranks of a host can be
// merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace tutti::nccl {

enum class EventKind { group_api, call_api, launch, group, call, proxy_op, proxy_step };

class Recording;

struct Event {
  Recording* recording = nullptr;
  // Address of the parent event. It is only compared, because the event may belong to another
  // process.
  const void* parent = nullptr;
  EventKind kind = EventKind::group;
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;  // 0: still running
  std::vector<std::pair<const char*, Json>> arguments;
  std::vector<std::pair<const char*, int64_t>> states;  // time at which each state was entered
};

// The recording of one communicator. Thread-safe, as long as each event belongs to one thread.
class Recording {
 public:
  static constexpr size_t kMost = size_t{1} << 18;

  // Starts a recording. It is written to `path`, with communicator and rank inserted before the
  // extension.
  Recording(std::string path, std::string communicator, int rank);

  // Starts an event. Returns a handle that is valid until the end of the recording; null if there
  // are too many events.
  Event* start(Event event);
  static void stop(Event& event);
  static void enter(Event& event, const char* state, int64_t bytes);

  // Sets the rank from an event, if it was not known before.
  void set_rank(int rank);
  // Writes the file and returns its name. Throws Error(system).
  std::string write();

 private:
  const std::string path_;
  const std::string communicator_;
  std::mutex mutex_;
  int rank_;
  std::deque<Event> events_;
  uint64_t dropped_ = 0;
};

}  // namespace tutti::nccl
