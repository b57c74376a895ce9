// Tutti beside an MPI library in one process: from MPI_Init to MPI_Finalize.
//
// The ranks of MPI_COMM_WORLD join a job of Tutti's in MPI_Init, by means of the MPI library
// itself: rank 0's address and a fresh token go out by MPI_Bcast. Other communicators are made of
// that one when they are first used, by their members only; until then they cost nothing. What
// belongs to a communicator hangs on it as an attribute, and goes when MPI frees it.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/mpi/ranges.h"
#include "bindings/mpi/report.h"
#include "bindings/mpi/requests.h"
#include "collectives/communicator.h"

namespace tutti::mpi {

// A communicator of MPI's, as Tutti has it.
struct Channel : std::enable_shared_from_this<Channel> {
  Communicator communicator;  // empty where Tutti cannot serve it: on all of its ranks alike
  // None any more when the program has freed it, as it may while calls are under way.
  std::atomic<MPI_Comm> comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::optional<Error> failure;  // why there is no communicator, though Tutti could serve it
};

// After PMPI_Init. Collective. Where one rank cannot join, none does, and all calls fall through.
void begin();
// Before PMPI_Finalize: shows the report, and leaves.
void end();

// What a call may decide by: only what MPI makes equal on all its ranks. Else one of them would
// wait in Tutti for others that wait in MPI.
struct Decision {
  Fate fate = Fate::through;
  uint64_t bytes = kUnknown;
  bool by_function = false;   // a reduction that Tutti has no kernel for
  bool runs_program = false;  // by a function of the program's, which needs the program's thread

  // Falls through where the MPI library refuses an argument.
  Decision& refuse_if(bool is_refused) {
    if (is_refused && fate == Fate::through) fate = Fate::argument;
    return *this;
  }
};

// Null: it falls through, and is counted as such. Throws why the communicator could not be made.
Channel* choose(Form form, Call call, MPI_Comm comm, const Decision& decision);

// Writes the error to standard error and calls the communicator's error handler, as MPI's own
// errors do. Returns the error's class.
int fail(MPI_Comm comm, Call call, const std::exception& error);
// The same by the window's error handler.
int fail_on_window(MPI_Win win, Call call, const std::exception& error);

// An error of a class that Tutti's own errors have not.
class ClassedError : public Error {
 public:
  ClassedError(int error_class, const std::string& what)
      : Error(ErrorCode::invalid_argument, what), error_class_(error_class) {}
  int error_class() const { return error_class_; }

 private:
  int error_class_;
};

// Memory of Tutti's, which the ranks of the host share; null: Tutti does not take windows of so
// many bytes, or could not start.
std::shared_ptr<void> allocate_for_windows(uint64_t bytes);
// While a rank waits for others elsewhere than in Tutti's calls.
void make_mpi_progress();

// How a call is made: it returns when it is done, or leaves a request.
struct Blocking {};
struct Starting {
  MPI_Request* request;
};

// While a function of the program's may run.
class HelperHeld {
 public:
  explicit HelperHeld(bool holds) : holds_(holds) {
    if (holds_) requests().hold_helper(true);
  }
  HelperHeld(const HelperHeld&) = delete;
  HelperHeld& operator=(const HelperHeld&) = delete;
  ~HelperHeld() {
    if (holds_) requests().hold_helper(false);
  }

 private:
  const bool holds_;
};

// Counts the call with what became of it. What Tutti has no way for on any rank, which it says
// before anything has moved, is the MPI library's.
template <typename Theirs, typename Ours>
int counted(Form form, Call call, MPI_Comm comm, Theirs theirs, Ours ours) {
  try {
    ours();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) return fail(comm, call, error);
    count(form, call, Fate::type_or_op);
    return theirs();
  } catch (const std::exception& error) {
    return fail(comm, call, error);
  }
  count(form, call, Fate::through);
  return MPI_SUCCESS;
}

// One call: by `ours` with the channel where Tutti takes it, by `theirs` otherwise.
template <typename Theirs, typename Ours>
int on_channel(Form form, Call call, MPI_Comm comm, const Decision& decision, Theirs theirs,
               Ours ours) {
  Channel* channel = nullptr;
  try {
    channel = choose(form, call, comm, decision);
  } catch (const std::exception& error) {
    return fail(comm, call, error);
  }
  if (channel == nullptr) return theirs();
  return counted(form, call, comm, theirs, [&] { ours(*channel); });
}

// One call: where Tutti takes it, as a task that `make` makes of it, with a `request` to Tutti,
// keep() for what must outlive the call, and finish() for what is to be done at its end; by
// `theirs` otherwise.
template <typename Theirs, typename Make>
int route(Blocking, Call call, MPI_Comm comm, const Decision& decision, Theirs theirs, Make make) {
  return on_channel(Form::blocking, call, comm, decision, theirs, [&](Channel& channel) {
    const HelperHeld held(decision.runs_program);
    auto task = make(channel);
    channel.communicator.run(task.request);
    task.finish();
  });
}

template <typename Task>
class PendingTask final : public Pending {
 public:
  PendingTask(Call call, std::shared_ptr<Channel> channel, Task&& task)
      : Pending(call, std::move(channel)), task_(std::move(task)) {}

 private:
  Work start(Communicator& communicator) override { return communicator.start(task_->request); }
  void finish(bool stores) override {
    if (stores) task_->finish();
    task_.reset();
  }

  std::optional<Task> task_;
};

template <typename Theirs, typename Make>
int route(Starting how, Call call, MPI_Comm comm, const Decision& decision, Theirs theirs,
          Make make) {
  return on_channel(Form::starting, call, comm, decision, theirs, [&](Channel& channel) {
    auto task = make(channel);
    task.keep();
    using Task = decltype(task);
    requests().start(
        std::make_unique<PendingTask<Task>>(call, channel.shared_from_this(), std::move(task)),
        how.request);
  });
}

}  // namespace tutti::mpi
