// Groups of calls: between group_begin() and group_end(), calls on any communicators are collected
// and none of them blocks; group_end() returns when all are complete. So a rank may issue its sends
// and receives in any order without a deadlock.
//
//   group_begin();
//   comm.send(to_next, next);
//   comm.recv(from_previous, previous);
//   group_end();
//
// A thread that drives several ranks (Communicator::init_async) makes the calls of all of them in
// one group.
//
// The outermost group_end() enqueues calls on device memory and throws their errors: sends first,
// so that no receive blocks its stream before them, and otherwise in the order of the calls. One
// thread may make the calls of several GPUs, one per rank, but not on cudaStreamPerThread.
//
// Threads: a group belongs to the thread that began it. Groups nest; the outermost end counts.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace tutti {

void group_begin();
// Blocks until all calls of the group have ended, then throws the first of their Errors. Throws
// Error(invalid_argument) without a group_begin().
void group_end();
// Ends the group without waiting: returns the Works of its calls, which are in flight. (If it
// throws, it first waits for them.)
std::vector<Work> group_end_async();

// A group that ends with its scope, also when an exception leaves it:
//
//   Group group;
//   comm.send(to_next, next);
//   comm.recv(from_previous, previous);
//   group.end();  // without it the calls continue, and this scope does not wait for them
class Group {
 public:
  Group() { group_begin(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (ended_) return;
    try {
      group_end_async();
      // a call on device memory failed: another exception is leaving the scope
    } catch (const Error&) {
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
// Returns true if this thread is within a group,
bool in_group();
// which then keeps the Work.
void join_group(const Work& work);
// A call on device memory, which the end of the group enqueues on its stream.
struct DeviceCallOfGroup {
  int device = 0;
  size_t job = 0;              // hash of the communicator's job name
  const void* rank = nullptr;  // the calling rank, among those of its job
  bool receives = false;
  bool in_stream_of_thread = false;
  std::function<void()> put;
};
void join_group(DeviceCallOfGroup call);
// Returns true if the calls belong to more than one rank, whose progress must alternate. A call
// that completed at once belongs to none.
bool of_several_ranks(const std::vector<Work>& works);
}  // namespace internal

}  // namespace tutti
