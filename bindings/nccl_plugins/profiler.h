// Records NCCL's activity on one communicator to a file in Chrome's trace event format, as
// training/core/trace.h writes it: a rank is a process; groups, calls and the proxy's work have
// threads of their own.
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
  const void* parent = nullptr;  // only compared: it may belong to another process
  EventKind kind = EventKind::group;
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;  // 0: still running
  std::vector<std::pair<const char*, Json>> arguments;
  std::vector<std::pair<const char*, int64_t>> states;  // entry time by state
};

// Thread-safe, as long as each event belongs to one thread.
class Recording {
 public:
  static constexpr size_t kMost = size_t{1} << 18;

  // Writes to `path`, with communicator and rank inserted before its extension.
  Recording(std::string path, std::string communicator, int rank);

  // Returns a handle that is valid until the end; null: too many events.
  Event* start(Event event);
  static void stop(Event& event);
  static void enter(Event& event, const char* state, int64_t bytes);

  // Sets the rank from an event, if it was not known before.
  void set_rank(int rank);
  // Returns the file's name. Throws Error(system).
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
