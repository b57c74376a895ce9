#include "bindings/mpi/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "bindings/mpi/arguments.h"
#include "bindings/mpi/ranges.h"
#include "bindings/mpi/windows.h"
#include "transport/bootstrap/discovery/job.h"

namespace tutti::mpi {

namespace {

// Broadcasts a line of text from the communicator's rank 0.
std::string broadcast_text(const std::string& text, MPI_Comm comm) {
  uint64_t length = text.size();
  PMPI_Bcast(&length, 1, MPI_UINT64_T, 0, comm);
  std::string result = text;
  result.resize(length);
  PMPI_Bcast(result.data(), static_cast<int>(length), MPI_CHAR, 0, comm);
  return result;
}

// A rendezvous by MPI_Bcast. The bootstrap needs one value, rank 0's address.
class MpiRendezvous final : public Rendezvous {
 public:
  MpiRendezvous(MPI_Comm comm, int rank) : comm_(comm), rank_(rank) {}
  // Takes part in the broadcast if neither set() nor get() has done so, because the other ranks
  // wait for it. The value is then empty.
  ~MpiRendezvous() override {
    if (!value_) broadcast_text("", comm_);
  }
  std::string name() const override { return "MPI_Bcast"; }
  void set(const std::string& key, const std::string& value) override {
    if (rank_ == 0 && !value_) value_ = broadcast_text(value, comm_);
  }
  void remove(const std::string& key) override {}
  std::optional<std::string> get(const std::string& key) override {
    if (!value_) value_ = broadcast_text("", comm_);
    if (!value_->empty()) return value_;
    throw Error(ErrorCode::bootstrap, "rank 0 could not start",
                {.remedy = "check rank 0's output"});
  }

 private:
  const MPI_Comm comm_;
  const int rank_;
  std::optional<std::string> value_;
};

// Makes progress in MPI by testing a receive that is never matched. (In some libraries, probing a
// communicator of one rank does not make progress.)
class Progress {
 public:
  explicit Progress(MPI_Comm world) {
    PMPI_Comm_dup(world, &comm_);
    PMPI_Irecv(&nothing_, 1, MPI_CHAR, MPI_ANY_SOURCE, 0, comm_, &request_);
  }
  ~Progress() {
    PMPI_Cancel(&request_);
    PMPI_Wait(&request_, MPI_STATUS_IGNORE);
    PMPI_Comm_free(&comm_);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Tests the receive, unless another thread is testing it and so makes the progress.
  void make() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    int done = 0;
    if (lock) PMPI_Test(&request_, &done, MPI_STATUS_IGNORE);
  }

 private:
  std::mutex mutex_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  char nothing_ = 0;
};

int forget(MPI_Comm comm, int keyval, void* value, void* extra);

class Session {
 public:
  Session() {
    world_->comm = MPI_COMM_WORLD;
    PMPI_Comm_rank(MPI_COMM_WORLD, &world_->rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &world_->size);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval_, nullptr);
    const std::string smallest = settings().get_string("TUTTI_MPI_SMALLEST");
    if (smallest != "auto") {
      functions_ = programs_ = from(parse_bytes(smallest));
      for (Ranges& ranges : ranges_) ranges.fill(functions_);
    }
    // MPI has no deadlines, so by default there is none. A rank may compute for hours before its
    // next call.
    if (settings().value("TUTTI_TIMEOUT").origin == "default") {
      settings().set("TUTTI_TIMEOUT", "inf", "MPI");
    }
    if (world_->size == 1) return;  // a single rank would not benefit
    progress_.emplace(MPI_COMM_WORLD);
    join();
  }

  ~Session() {
    for (auto& [address, channel] : channels_) channel->communicator = {};
    world_->communicator = {};
    progress_.reset();
    PMPI_Comm_free_keyval(&keyval_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool takes(Form form, Call call, const Decision& decision) const {
    const Range& range = ranges_[static_cast<size_t>(form)][static_cast<size_t>(call)];
    if (!range.has(decision.bytes)) return false;
    if (decision.runs_program) return programs_.has(decision.bytes);
    return !decision.by_function || functions_.has(decision.bytes);
  }
  int world_rank() const { return world_->rank; }
  void make_progress() {
    if (progress_) progress_->make();
  }
  std::shared_ptr<void> allocate_for_windows(uint64_t bytes) {
    if (!world_->communicator.valid()) return nullptr;
    if (!takes(Form::blocking, Call::win_create, {.bytes = bytes})) return nullptr;
    return world_->communicator.allocate<std::byte>(bytes);
  }

  Channel& channel_of(MPI_Comm comm) {
    Channel* const found = find(comm);
    return found != nullptr ? *found : add(comm);
  }
  // Returns the channel; null if no blocking call has used this communicator with Tutti yet.
  Channel* find(MPI_Comm comm) {
    if (comm == MPI_COMM_WORLD) return world_.get();
    void* found = nullptr;
    int flag = 0;
    PMPI_Comm_get_attr(comm, keyval_, static_cast<void*>(&found), &flag);
    return flag != 0 ? static_cast<Channel*>(found) : nullptr;
  }

  // Removes the channel. Calls in flight keep it alive until they have ended.
  void remove(void* channel) {
    static_cast<Channel*>(channel)->comm = MPI_COMM_NULL;
    // `gone` is destroyed after the lock is released, so that other threads can create
    // communicators meanwhile.
    decltype(channels_)::node_type gone;
    const std::lock_guard lock(mutex_);
    gone = channels_.extract(channel);
  }

 private:
  // Joins the job. All ranks join or none does, because a call must fall through on all ranks or on
  // none.
  void join() {
    std::string problem;
    try {
      KnownJob known;
      known.rank = world_->rank;
      known.size = world_->size;
      known.rendezvous = std::make_shared<MpiRendezvous>(MPI_COMM_WORLD, world_->rank);
      world_->communicator = Communicator::init(job_from_environment(known));
      world_->communicator.while_waiting([this] { progress_->make(); });
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const int joined = problem.empty() ? 1 : 0;
    int all_joined = 0;
    PMPI_Allreduce(&joined, &all_joined, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!problem.empty()) {
      log(LogLevel::warning,
          cat("MPI continues without Tutti, rank ", world_->rank, ": ", problem));
    }
    if (all_joined == 0) world_->communicator = {};
  }

  Channel& add(MPI_Comm comm) {
    auto made = std::make_shared<Channel>();
    Channel& channel = *made;
    make(comm, channel);
    PMPI_Comm_set_attr(comm, keyval_, &channel);
    const std::lock_guard lock(mutex_);
    channels_.emplace(&channel, std::move(made));
    return channel;
  }

  // Creates the channel, with the same result on all ranks of the communicator. All of them call
  // make() in their first blocking call on the communicator.
  void make(MPI_Comm comm, Channel& channel) {
    int is_inter = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    channel.comm = comm;
    PMPI_Comm_rank(comm, &channel.rank);
    PMPI_Comm_size(comm, &channel.size);
    if (is_inter != 0 || channel.size == 1 || !world_->communicator.valid()) return;
    const std::vector<int> ranks = ranks_in_world(comm, channel.size);
    // Ranks of a spawned or connected job are not part of this world.
    if (std::ranges::find(ranks, MPI_UNDEFINED) != ranks.end()) return;
    // Threads may create communicators of the same ranks concurrently, in any order, so the ranks
    // agree on a tag.
    int tag = next_tag_.fetch_add(1) % kLargestTag;
    PMPI_Bcast(&tag, 1, MPI_INT, 0, comm);
    // If the creation fails, the error is kept and calls on this communicator fail. They must not
    // fall through to MPI, because other ranks may make them in Tutti.
    try {
      channel.communicator = world_->communicator.create(ranks, tag);
    } catch (const Error& error) {
      channel.failure = error;
    }
  }

  static std::vector<int> ranks_in_world(MPI_Comm comm, int size) {
    std::vector<int> own(static_cast<size_t>(size));
    std::vector<int> ranks(own.size());
    std::iota(own.begin(), own.end(), 0);
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Group world = MPI_GROUP_NULL;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, size, own.data(), world, ranks.data());
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return ranks;
  }

  const QuietComm quiet_;
  const std::shared_ptr<Channel> world_ = std::make_shared<Channel>();
  RangesOfForms ranges_ = kMeasured;
  Range functions_ = kMeasuredFunctions;
  Range programs_ = kMeasuredPrograms;
  int keyval_ = MPI_KEYVAL_INVALID;
  std::optional<Progress> progress_;
  std::atomic<int> next_tag_{0};
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<Channel>> channels_;  // guarded by mutex_
};

// The session, which exists from MPI_Init to MPI_Finalize. No other MPI call may overlap with these
// two. A program that exits without MPI_Finalize leaks it, because MPI must not be called then.
Session* session = nullptr;

int forget(MPI_Comm comm, int keyval, void* value, void* extra) {
  if (session != nullptr) session->remove(value);
  return MPI_SUCCESS;
}

// Returns the MPI error class. If ranks pass different numbers of bytes, MPI calls that a
// truncation.
int class_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return MPI_ERR_NO_MEM;
  const auto* const classed = dynamic_cast<const ClassedError*>(&error);
  if (classed != nullptr) return classed->error_class();
  const auto* const ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr) return MPI_ERR_INTERN;
  switch (ours->code()) {
    case ErrorCode::invalid_argument:
      return MPI_ERR_ARG;
    case ErrorCode::mismatch:
      return MPI_ERR_TRUNCATE;
    case ErrorCode::internal:
      return MPI_ERR_INTERN;
    default:
      return MPI_ERR_OTHER;
  }
}

int reported_class_of(Call call, const std::exception& error) {
  std::cerr << cat("tutti mpi: MPI_", name(call), ": ", error.what(), '\n');
  return class_of(error);
}

void show_report() {
  if (!settings().get_bool("TUTTI_MPI_REPORT") || session->world_rank() != 0) return;
  std::cerr << cat("tutti mpi: calls of rank 0\n", report());
}

}  // namespace

void begin() {
  int level = MPI_THREAD_MULTIPLE;
  PMPI_Query_thread(&level);
  count_atomically(level == MPI_THREAD_MULTIPLE);
  try {
    session = std::make_unique<Session>().release();
    // Session() throws if a setting is invalid. The setting is invalid on all ranks, so the job
    // aborts.
  } catch (const std::exception& error) {
    std::cerr << cat("tutti mpi: ", error.what(), '\n');
    PMPI_Abort(MPI_COMM_WORLD, 1);
  }
}

void end() {
  if (session == nullptr) return;
  show_report();
  requests().close();
  end_windows();
  const std::unique_ptr<Session> last(std::exchange(session, nullptr));
}

Channel* choose(Form form, Call call, MPI_Comm comm, const Decision& decision) {
  const auto fall = [&](Outcome outcome) {
    count(form, call, outcome);
    return nullptr;
  };
  if (session == nullptr) return fall(Outcome::not_joined);
  if (decision.outcome != Outcome::through) return fall(decision.outcome);
  if (form == Form::starting && decision.runs_program) return fall(Outcome::type_or_op);
  if (!session->takes(form, call, decision)) return fall(Outcome::size);
  if (comm == MPI_COMM_NULL) return fall(Outcome::argument);
  // Creating a communicator blocks until other ranks do so as well. Calls that must not block only
  // look for an existing one.
  Channel* const channel =
      form == Form::starting ? session->find(comm) : &session->channel_of(comm);
  if (channel == nullptr) return fall(Outcome::first_use);
  if (channel->failure) throw Error(*channel->failure);
  if (!channel->communicator.valid()) return fall(Outcome::communicator);
  return channel;
}

std::shared_ptr<void> allocate_for_windows(uint64_t bytes) {
  return session == nullptr ? nullptr : session->allocate_for_windows(bytes);
}

void make_mpi_progress() {
  if (session != nullptr) session->make_progress();
}

int fail_on_window(MPI_Win win, Call call, const std::exception& error) {
  const int error_class = reported_class_of(call, error);
  PMPI_Win_call_errhandler(win, error_class);
  return error_class;
}

int fail(MPI_Comm comm, Call call, const std::exception& error) {
  const int error_class = reported_class_of(call, error);
  PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_SELF : comm, error_class);
  return error_class;
}

}  // namespace tutti::mpi
