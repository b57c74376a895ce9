// What stands behind an ncclComm_t, how ranks meet by an ncclUniqueId, and how they leave.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "bindings/nccl/abi.h"
#include "bindings/use_gate.h"
#include "collectives/communicator.h"
#include "transport/bootstrap/discovery/job.h"

struct ncclComm {
  tutti::Communicator communicator;
  int device = 0;
  std::string group;  // the same for the ranks of this process that are in the communicator
  std::atomic<int> splits = 0;
  tutti::UseGate gate;  // of all of it
  std::mutex mutex;
  std::map<int, double> factors;  // of operators, by number; guarded by mutex
  int operators_made = 0;         // likewise
};

struct ncclWindow_vidmem {
  tutti::Registration registration;
};

namespace tutti::nccl {

ncclResult_t failed(ErrorCode code, const std::string& text);
const std::string& last_error();  // of the calling thread

// No exception crosses the border.
template <typename Action>
ncclResult_t guarded(const Action& action) noexcept {
  try {
    action();
    return ncclSuccess;
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::system, "out of memory");
  } catch (const std::exception& error) {
    return failed(ErrorCode::internal, error.what());
  }
}

[[noreturn]] void invalid(const std::string& what);
[[noreturn]] void unsupported(const std::string& what, const std::string& remedy);
template <typename T>
T& checked(T* pointer, const char* what) {
  if (pointer == nullptr) invalid(std::string(what) + " is NULL");
  return *pointer;
}

// A call's use of a communicator, which stays as long: a watchdog may abort it, or another thread
// end it, at any time.
class Use {
 public:
  // Throws Error(invalid_argument) where the communicator has been destroyed or aborted.
  explicit Use(std::shared_ptr<ncclComm> comm);
  ncclComm& operator*() const { return *comm_; }
  ncclComm* operator->() const { return comm_.get(); }
  const std::shared_ptr<ncclComm>& comm() const { return comm_; }

 private:
  std::shared_ptr<ncclComm> comm_;
  UseGate::Use inside_;
};

// By its handle. Throws Error(invalid_argument) for one that is NULL, or of no communicator any
// more.
Use use(ncclComm_t comm);

// Listens for the job's ranks, in the process that calls, which must be rank 0's.
ncclUniqueId make_id();
// Blocks until all ranks are there. With the current device.
ncclComm_t join(const ncclUniqueId& id, int rank, int ranks);
// A part of `comm`; `name` tells it apart from others that its ranks make of it.
ncclComm_t part_of(ncclComm& comm, Communicator part, const std::string& name);
// Refuses further calls, waits for those of other threads, and leaves; within a group, at its end.
// The communicator goes when all its ranks of this process have left: one thread may be several of
// them, and those that leave wait for each other.
void leave(ncclComm_t comm);
// The same, but makes all calls on the communicator fail first, at once.
void abort(ncclComm_t comm);

// Now, or within a group at its end: then each `rank`'s in a thread of its own, for one thread may
// be several ranks, in the order in which they were asked for.
void meet_others(const void* rank, std::function<void()> action);
// The same for what is done with a communicator, which is then used by that thread.
void meet_others(const Use& comm, std::function<void(ncclComm&)> action);
// Within a group the communicator stays until its end, when the call is made.
void use_in_group(Use comm);
void begin_group();
void end_group();

}  // namespace tutti::nccl
