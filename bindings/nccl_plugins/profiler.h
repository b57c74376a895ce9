// What NCCL does on one communicator, as a file in Chrome's trace event format, as
// training/core/trace.h writes it: a rank is a process; groups, calls and the proxy's work have
// threads of their own.
//
// Times are in microseconds of this machine's steady clock, so files of the ranks of a host can be
// put side by side.
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
  const void* parent = nullptr;  // compared only: it may be another process's
  EventKind kind = EventKind::group;
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;  // 0: not yet
  std::vector<std::pair<const char*, Json>> arguments;
  std::vector<std::pair<const char*, int64_t>> states;  // entered when
};

// Any thread may write an event of its own.
class Recording {
 public:
  static constexpr size_t kMost = size_t{1} << 18;

  // Writes to `path`, with what tells the communicator and the rank in front of its extension.
  Recording(std::string path, std::string communicator, int rank);

  // A handle that stays until the end; null: there are too many.
  Event* start(Event event);
  static void stop(Event& event);
  static void enter(Event& event, const char* state, int64_t bytes);

  // Where nothing was told before, an event tells the rank.
  void set_rank(int rank);
  // Throws Error(system). Returns the file's name.
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
