#include "bindings/nccl/comm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/fd.h"
#include "base/random_token.h"
#include "base/text.h"
#include "collectives/group.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::nccl {

namespace {

// The bytes of an ncclUniqueId.
struct Place {
  char what[8];  // has the text kWhat
  char address[64];
  uint16_t port;
  char token[33];
};
static_assert(sizeof(Place) <= NCCL_UNIQUE_ID_BYTES);
constexpr char kWhat[8] = "tutti 1";

// The listening sockets of jobs whose rank 0 has not joined yet, by token.
class Listeners {
 public:
  static Listeners& of_process() {
    static Listeners listeners;
    return listeners;
  }
  void keep(const std::string& token, Fd socket) {
    const std::lock_guard lock(mutex_);
    sockets_[token] = std::move(socket);
  }
  int release(const std::string& token) {
    const std::lock_guard lock(mutex_);
    const auto found = sockets_.find(token);
    if (found == sockets_.end()) return -1;
    const int socket = found->second.release();
    sockets_.erase(found);
    return socket;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Fd> sockets_;
};

// The communicators of this process by handle, and for each ncclComm::group the number of its ranks
// that have not begun to leave, and the communicators of the ranks that are leaving.
class Members {
 public:
  static Members& of_process() {
    // The table is never destroyed, so that exit() does not leave communicators that the program
    // did not destroy.
    static Members& members = *std::make_unique<Members>().release();
    return members;
  }
  ncclComm_t add(std::shared_ptr<ncclComm> comm) {
    const std::lock_guard lock(mutex_);
    ++groups_[comm->group].present;
    const ncclComm_t handle = comm.get();
    known_.emplace(handle, std::move(comm));
    return handle;
  }
  // Returns the communicator; null if it no longer exists.
  std::shared_ptr<ncclComm> find(ncclComm_t handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(handle);
    return found == known_.end() ? nullptr : found->second;
  }
  // Removes a communicator. Returns the communicators that are released now.
  std::vector<std::shared_ptr<ncclComm>> remove(const std::shared_ptr<ncclComm>& comm) {
    const std::lock_guard lock(mutex_);
    known_.erase(comm.get());
    const auto group = groups_.find(comm->group);
    group->second.leaving.push_back(comm);
    if (--group->second.present > 0) return {};
    auto all = std::move(group->second.leaving);
    groups_.erase(group);
    return all;
  }

 private:
  struct Group {
    int present = 0;
    std::vector<std::shared_ptr<ncclComm>> leaving;
  };
  mutable std::mutex mutex_;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> known_;
  std::map<std::string, Group> groups_;
};

thread_local std::string error_text;

using Actions = std::vector<std::function<void()>>;

// State that a thread's group collects.
struct Meetings {
  int depth = 0;
  std::map<const void*, Actions> by_rank;
  std::vector<Use> uses;                           // for calls that are made at the group's end
  std::vector<std::shared_ptr<ncclComm>> leaving;  // communicators that leave at the group's end
};
thread_local Meetings meetings;

void all_at_a_time(const std::map<const void*, Actions>& by_rank) {
  std::vector<std::exception_ptr> failures(by_rank.size());
  {
    std::vector<std::jthread> threads;
    size_t next = 0;
    for (const auto& [rank, actions] : by_rank) {
      threads.emplace_back([&actions = actions, &failure = failures[next++]] {
        try {
          for (const std::function<void()>& action : actions) action();
        } catch (...) {
          failure = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

ncclResult_t result_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok:
      return ncclSuccess;
    case ErrorCode::invalid_argument:
      return ncclInvalidArgument;
    case ErrorCode::mismatch:
    case ErrorCode::unsupported:
      return ncclInvalidUsage;
    case ErrorCode::system:
    case ErrorCode::bootstrap:
      return ncclSystemError;
    case ErrorCode::internal:
      return ncclInternalError;
    default:  // a failure that another rank caused
      return ncclRemoteError;
  }
}

}  // namespace

ncclResult_t failed(ErrorCode code, const std::string& text) {
  error_text = text;
  return result_of(code);
}

const std::string& last_error() { return error_text; }

void invalid(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

void unsupported(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::unsupported, what + " is not supported by Tutti's libnccl",
              {.remedy = remedy});
}

namespace {

[[noreturn]] void refuse_ended() {
  throw Error(ErrorCode::invalid_argument, "the communicator does not exist",
              {.cause = "ncclCommDestroy or ncclCommAbort has released it",
               .remedy = "make no further calls on it"});
}

std::shared_ptr<ncclComm> known(ncclComm_t comm) {
  checked(comm, "the communicator");
  std::shared_ptr<ncclComm> found = Members::of_process().find(comm);
  if (!found) refuse_ended();
  return found;
}

}  // namespace

Use::Use(std::shared_ptr<ncclComm> comm) : comm_(std::move(comm)), inside_(comm_->gate.enter()) {
  if (!inside_) refuse_ended();
}

Use use(ncclComm_t comm) { return Use(known(comm)); }

ncclUniqueId make_id() {
  bootstrap::SocketAddress address = bootstrap::reachable_address();
  address.set_port(0);
  Fd listener = bootstrap::listen_on(address);
  Place place{};
  std::memcpy(place.what, kWhat, sizeof kWhat);
  std::string host = address.host();
  std::copy_n(host.data(), std::min(host.size(), sizeof place.address - 1), place.address);
  place.port = bootstrap::local_address(listener.get()).port();
  const std::string token = random_token();
  std::ranges::copy(token, place.token);
  Listeners::of_process().keep(token, std::move(listener));
  ncclUniqueId id{};
  std::memcpy(id.internal, &place, sizeof place);
  return id;
}

ncclComm_t join(const ncclUniqueId& id, int rank, int ranks) {
  Place place{};
  std::memcpy(&place, id.internal, sizeof place);
  if (std::memcmp(place.what, kWhat, sizeof kWhat) != 0) {
    throw Error(ErrorCode::invalid_argument, "the ncclUniqueId was not created by this library",
                {.cause = "it reached this rank incomplete, or another libnccl created it",
                 .remedy = "pass the id of rank 0's ncclGetUniqueId to all ranks"});
  }
  if (ranks < 1 || rank < 0 || rank >= ranks)
    invalid(cat("rank ", rank, " is out of range for ", ranks, " ranks"));
  Job job = job_from_environment({.rank = rank,
                                  .size = ranks,
                                  .master_address = place.address,
                                  .master_port = place.port,
                                  .rendezvous_file = {},
                                  .rendezvous = nullptr});
  job.token = place.token;
  if (rank == 0) {
    Fd listener(Listeners::of_process().release(place.token));
    if (ranks > 1) job.listen_fd = listener.release();  // a single rank does not need to listen
    if (job.listen_fd < 0 && ranks > 1) {
      throw Error(ErrorCode::unsupported,
                  "rank 0 runs in another process than the one that created the ncclUniqueId",
                  {.remedy = "call ncclGetUniqueId in rank 0's process, once per communicator"});
    }
  }
  auto comm = std::make_shared<ncclComm>();
  comm->device = cuda::current_device();
  comm->group = place.token;
  comm->communicator = Communicator::init(job);
  return Members::of_process().add(std::move(comm));
}

ncclComm_t part_of(ncclComm& comm, Communicator part, const std::string& name) {
  auto made = std::make_shared<ncclComm>();
  made->device = comm.device;
  made->group = cat(comm.group, '/', name);
  made->communicator = std::move(part);
  return Members::of_process().add(std::move(made));
}

namespace {

void leave_now(const std::shared_ptr<ncclComm>& comm) {
  std::vector<std::shared_ptr<ncclComm>> all;
  comm->gate.close([&] { all = Members::of_process().remove(comm); });
  std::vector<std::jthread> threads;
  for (const std::shared_ptr<ncclComm>& own : all) {
    threads.emplace_back([&own] { own->communicator = {}; });
  }
}

void leave_or_join_group(std::shared_ptr<ncclComm> comm) {
  if (meetings.depth == 0) return leave_now(comm);
  meetings.leaving.push_back(std::move(comm));
}

}  // namespace

void leave(ncclComm_t comm) { leave_or_join_group(known(comm)); }

void abort(ncclComm_t comm) {
  std::shared_ptr<ncclComm> own = known(comm);
  if (const UseGate::Use inside = own->gate.enter_until_closed()) {
    own->communicator.abort("ncclCommAbort");
  }
  leave_or_join_group(std::move(own));
}

void meet_others(const void* rank, std::function<void()> action) {
  if (meetings.depth == 0) return action();
  const int device = cuda::current_device();
  meetings.by_rank[rank].push_back([device, action = std::move(action)] {
    const cuda::Context context(device);
    const cuda::CurrentContext current(context);
    action();
  });
}

void meet_others(const Use& comm, std::function<void(ncclComm&)> action) {
  meet_others(comm.comm().get(), [own = comm.comm(), action = std::move(action)] {
    const Use inside(own);
    action(*inside);
  });
}

void use_in_group(Use comm) {
  if (meetings.depth > 0) meetings.uses.push_back(std::move(comm));
}

void begin_group() {
  ++meetings.depth;
  group_begin();
}

void end_group() {
  if (meetings.depth == 0) {
    throw Error(ErrorCode::unsupported, "ncclGroupEnd without an ncclGroupStart");
  }
  std::exception_ptr failure;
  const auto try_to = [&failure](const auto& action) {
    try {
      action();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  const bool is_outermost = --meetings.depth == 0;
  if (is_outermost) try_to([] { all_at_a_time(std::exchange(meetings.by_rank, {})); });
  try_to([] { group_end(); });
  if (is_outermost) {
    meetings.uses.clear();
    for (const auto& comm : std::exchange(meetings.leaving, {})) leave_now(comm);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti::nccl
