// Tutti's job beside an MPI library in one process, from MPI_Init to MPI_Finalize.
//
// The ranks of MPI_COMM_WORLD join a Tutti job in MPI_Init, using the MPI library itself: MPI_Bcast
// distributes rank 0's address and a fresh token. Other communicators are created on first use, by
// their members only, and cost nothing before their first use. A communicator's Tutti state is
// attached to it as an attribute, and is freed with it.
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

// Tutti's counterpart of an MPI communicator.
struct Channel : std::enable_shared_from_this<Channel> {
  Communicator communicator;  // empty on all ranks if Tutti cannot serve the ranks
  // The MPI communicator. It is null once the program has freed it; calls may still be in flight
  // then.
  std::atomic<MPI_Comm> comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::optional<Error> failure;  // why creation failed although Tutti could serve the communicator
};

// Joins the job; called after PMPI_Init. Collective. If not all ranks can join, none does, and all
// calls fall through.
void begin();
// Prints the report and leaves the job; called before PMPI_Finalize.
void end();

// The inputs of a decision. All of them are equal on all ranks, as MPI requires. If they differed,
// one rank could wait in Tutti while others wait in MPI.
struct Decision {
  Outcome outcome = Outcome::through;
  uint64_t bytes = kUnknown;
  bool by_function = false;  // true: a reduction without a Tutti kernel
  // true: the reduction calls a function that the program supplied, so it must run on the program's
  // thread.
  bool runs_program = false;

  // Makes the call fall through if the MPI library rejects an argument.
  Decision& refuse_if(bool is_refused) {
    if (is_refused && outcome == Outcome::through) outcome = Outcome::argument;
    return *this;
  }
};

// Returns the channel that serves the call. If the call falls through, returns null and counts the
// call. Throws the error with which the creation of the communicator failed.
Channel* choose(Form form, Call call, MPI_Comm comm, const Decision& decision);

// Writes the error to standard error and calls the communicator's error handler, as happens for
// MPI's own errors. Returns the error's class.
int fail(MPI_Comm comm, Call call, const std::exception& error);
// Writes the error to standard error and calls the window's error handler. Returns the error's
// class.
int fail_on_window(MPI_Win win, Call call, const std::exception& error);

// An error with an MPI class that Tutti's own codes lack.
class ClassedError : public Error {
 public:
  ClassedError(int error_class, const std::string& what)
      : Error(ErrorCode::invalid_argument, what), error_class_(error_class) {}
  int error_class() const { return error_class_; }

 private:
  int error_class_;
};

// Returns memory that the ranks of the host share. Returns null if Tutti does not handle windows of
// `bytes` bytes, or could not start.
std::shared_ptr<void> allocate_for_windows(uint64_t bytes);
// Makes progress in MPI while a rank waits outside Tutti's calls.
void make_mpi_progress();

// Forms of a call: Blocking returns on completion, and Starting sets a request.
struct Blocking {};
struct Starting {
  MPI_Request* request;
};

// Suspends the helper while a function that the program supplied may run.
class HelperSuspension {
 public:
  explicit HelperSuspension(bool holds) : holds_(holds) {
    if (holds_) requests().hold_helper(true);
  }
  HelperSuspension(const HelperSuspension&) = delete;
  HelperSuspension& operator=(const HelperSuspension&) = delete;
  ~HelperSuspension() {
    if (holds_) requests().hold_helper(false);
  }

 private:
  const bool holds_;
};

// Executes one call and counts it with its outcome. If Tutti does not support the call, the call
// falls through on all ranks; Tutti detects this before any data moves.
template <typename Theirs, typename Ours>
int counted(Form form, Call call, MPI_Comm comm, Theirs theirs, Ours ours) {
  try {
    ours();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) return fail(comm, call, error);
    count(form, call, Outcome::type_or_op);
    return theirs();
  } catch (const std::exception& error) {
    return fail(comm, call, error);
  }
  count(form, call, Outcome::through);
  return MPI_SUCCESS;
}

// Executes one call: by `ours` with the channel if Tutti handles it, otherwise by `theirs`.
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

// Executes one call. If Tutti handles it, `make` returns a task: its `request` is the call, keep()
// keeps everything that a non-blocking call needs until it ends, and finish() runs on completion.
// Otherwise `theirs` executes the call.
template <typename Theirs, typename Make>
int route(Blocking, Call call, MPI_Comm comm, const Decision& decision, Theirs theirs, Make make) {
  return on_channel(Form::blocking, call, comm, decision, theirs, [&](Channel& channel) {
    const HelperSuspension held(decision.runs_program);
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
