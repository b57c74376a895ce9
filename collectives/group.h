// Between group_begin() and group_end(), calls on any communicators are collected and none of them
// blocks; group_end() returns when all are complete. A rank may thus list its sends and receives in
// any order without a deadlock.
//
//   group_begin();
//   comm.send(to_next, next);
//   comm.recv(from_previous, previous);
//   group_end();
//
// One thread that acts as several ranks (Communicator::init_async) makes all their calls in one
// group.
//
// The outermost group_end() enqueues calls on device memory on their streams and throws their
// errors. Receives are enqueued last, so that no receive blocks the stream of a send; all other
// calls keep their order. One thread may make the calls of several ranks, each on its own GPU, but
// then cannot use cudaStreamPerThread.
//
// Threads: a group belongs to the thread that began it. Groups nest; the outermost end takes
// effect.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace tutti {

void group_begin();
// Ends the group. The outermost end blocks until all calls have ended, then throws the first Error
// among them. Throws Error(invalid_argument) without a group_begin().
void group_end();
// Ends the group without blocking. The outermost end returns the Works of the calls, which may be
// in flight. If a call on device memory fails, waits for all calls, then throws that call's error.
std::vector<Work> group_end_async();

// RAII group:
//
//   Group group;
//   comm.send(to_next, next);
//   comm.recv(from_previous, previous);
//   group.end();  // if skipped or not reached, the calls continue and nothing waits for them
class Group {
 public:
  Group() { group_begin(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (ended_) return;
    try {
      group_end_async();
    } catch (const Error&) {  // a call on device memory failed while the scope is being left
    }
  }
  void end() {
    ended_ = true;
    group_end();
  }

 private:
  bool ended_ = false;
};

namespace internal {
// Returns true if this thread is within a group.
bool in_group();
// Adds the call to the thread's group, which keeps a copy of `work`. No effect outside a group.
void join_group(const Work& work);
// A call on device memory that the end of the group enqueues on its stream.
struct DeviceCallOfGroup {
  int device = 0;
  size_t job = 0;              // hash of the name of the communicator's job
  const void* rank = nullptr;  // identifies the calling rank within its job
  bool receives = false;
  bool in_stream_of_thread = false;
  std::function<void()> put;
};
void join_group(DeviceCallOfGroup call);
// Returns true if several ranks made the calls, so that they must be progressed in turn. Calls that
// completed at once are ignored.
bool of_several_ranks(const std::vector<Work>& works);
}  // namespace internal

}  // namespace tutti
