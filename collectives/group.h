// Several calls, one progress: between group_begin() and group_end() calls on any communicators are
// collected and none of them blocks; group_end() returns when all are complete. So a rank may name
// its sends and receives in any order without a deadlock.
//
//   group_begin();
//   comm.send(to_next, next);
//   comm.recv(from_previous, previous);
//   group_end();
//
// One thread that is several ranks (Communicator::init_async) makes the calls of all of them in one
// group.
//
// Calls on device memory are put into their streams by the outermost group_end(), which also throws
// what is wrong with them: sends first, so that no receive keeps its stream from them, else in the
// order in which they were made. One thread may make those of several GPUs, one for each rank; not
// in cudaStreamPerThread, then.
//
// Threads: a group belongs to the thread that began it. Groups nest; the outermost end counts.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace tutti {

void group_begin();
// Throws the first Error among its calls, when all have ended; Error(invalid_argument) without a
// group_begin().
void group_end();
// The same without waiting: the calls are under way, and the Works belong to the caller. (It waits
// for them where it throws.)
std::vector<Work> group_end_async();

// A group that ends with its scope, whatever leaves it:
//
//   Group group;
//   comm.send(to_next, next);
//   comm.recv(from_previous, previous);
//   group.end();  // left out, or not reached: the calls go on, and nobody waits for them here
class Group {
 public:
  Group() { group_begin(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (ended_) return;
    try {
      group_end_async();
    } catch (const Error&) {  // of a call on device memory, for whoever left the scope so
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
// Whether this thread is within a group,
bool in_group();
// which then keeps the Work.
void join_group(const Work& work);
// A call on device memory, to be put into its stream at the end of the group.
struct DeviceCallOfGroup {
  int device = 0;
  size_t job = 0;              // a hash of the name of the communicator's
  const void* rank = nullptr;  // the one that calls, among those of its job
  bool receives = false;
  bool in_stream_of_thread = false;
  std::function<void()> put;
};
void join_group(DeviceCallOfGroup call);
// Whether they are calls of more than one rank, which must be moved in turn. A call that was over
// at once is of none.
bool of_several_ranks(const std::vector<Work>& works);
}  // namespace internal

}  // namespace tutti
