// Defines the object behind an ncclComm_t, and functions by which ranks join a job (by its
// ncclUniqueId) and leave it.
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
  std::string group;  // ID that all ranks of the communicator have
  std::atomic<int> splits = 0;
  tutti::UseGate gate;  // guards the whole object
  std::mutex mutex;
  std::map<int, double> factors;  // factors of operators, by number; guarded by mutex
  int operators_made = 0;         // guarded by mutex
};

struct ncclWindow_vidmem {
  tutti::Registration registration;
};

namespace tutti::nccl {

ncclResult_t failed(ErrorCode code, const std::string& text);
const std::string& last_error();  // error of the calling thread

// Runs an action and converts its exception to a result, so that no exception crosses the C
// interface.
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

// Keeps a communicator alive during a call. A watchdog may abort the communicator, or another
// thread may destroy it, at any time.
class Use {
 public:
  // Begins the use. Throws Error(invalid_argument) if the communicator has been destroyed or
  // aborted.
  explicit Use(std::shared_ptr<ncclComm> comm);
  ncclComm& operator*() const { return *comm_; }
  ncclComm* operator->() const { return comm_.get(); }
  const std::shared_ptr<ncclComm>& comm() const { return comm_; }

 private:
  std::shared_ptr<ncclComm> comm_;
  UseGate::Use inside_;
};

// Looks up a handle and begins a use. Throws Error(invalid_argument) if the handle is NULL, or its
// communicator no longer exists.
Use use(ncclComm_t comm);

// Starts listening for the job's ranks in the calling process, which must be the process of rank 0.
ncclUniqueId make_id();
// Joins the job on the current device. Blocks until all ranks have joined.
ncclComm_t join(const ncclUniqueId& id, int rank, int ranks);
// Returns the handle of `part`, a part of `comm`. `name` distinguishes the part from other parts
// that the ranks of `comm` create.
ncclComm_t part_of(ncclComm& comm, Communicator part, const std::string& name);
// Rejects further calls, waits for calls of other threads, and leaves the communicator. Within a
// group, this happens at the end of the group. The communicator is released when all its ranks in
// this process have left, because one thread may drive several of them, and leaving ranks wait for
// each other.
void leave(ncclComm_t comm);
// Makes all calls on the communicator fail at once, and then leaves it as leave() does.
void abort(ncclComm_t comm);

// Runs the action now or, within a group, at the end of the group. There, the actions of each
// `rank` run in order in a thread of their own, because one thread may drive several ranks.
void meet_others(const void* rank, std::function<void()> action);
// Runs an action on a communicator as the function above runs an action. The thread that runs the
// action holds a Use of the communicator.
void meet_others(const Use& comm, std::function<void(ncclComm&)> action);
// Within a group, keeps the communicator alive until the end of the group, when its calls are made.
void use_in_group(Use comm);
void begin_group();
void end_group();

}  // namespace tutti::nccl
