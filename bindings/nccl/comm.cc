#include "bindings/nccl/comm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/random_token.h"
#include "base/text.h"
#include "collectives/group.h"
#include "transport/bootstrap/socket.h"
#include "transport/cuda/device.h"

namespace tutti::nccl {

namespace {

// In an ncclUniqueId.
struct Place {
  char what[8];  // kWhat
  char address[64];
  uint16_t port;
  char token[33];
};
static_assert(sizeof(Place) <= NCCL_UNIQUE_ID_BYTES);
constexpr char kWhat[8] = "tutti 1";

// The sockets of jobs whose rank 0 has not come yet, by token.
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

// The ranks of this process in each communicator.
class Members {
 public:
  static Members& of_process() {
    static Members members;
    return members;
  }
  void add(const ncclComm& comm) {
    const std::lock_guard lock(mutex_);
    ++groups_[comm.group].present;
  }
  // Those that go now.
  std::vector<std::unique_ptr<ncclComm>> remove(ncclComm_t comm) {
    const std::lock_guard lock(mutex_);
    const auto group = groups_.find(comm->group);
    group->second.leaving.emplace_back(comm);
    if (--group->second.present > 0) return {};
    auto all = std::move(group->second.leaving);
    groups_.erase(group);
    return all;
  }

 private:
  struct Group {
    int present = 0;
    std::vector<std::unique_ptr<ncclComm>> leaving;
  };
  std::mutex mutex_;
  std::map<std::string, Group> groups_;
};

thread_local std::string error_text;

using Actions = std::vector<std::function<void()>>;

struct Meetings {
  int depth = 0;
  std::map<const void*, Actions> by_rank;
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
    default:  // another rank's
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
  throw Error(ErrorCode::unsupported, what + " is not in Tutti's libnccl", {.remedy = remedy});
}

ncclComm& checked(ncclComm_t comm) { return checked(comm, "the communicator"); }

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
    throw Error(ErrorCode::invalid_argument, "the ncclUniqueId was not made by this library",
                {.cause = "it did not reach this rank whole, or another libnccl made it",
                 .remedy = "hand the id of rank 0's ncclGetUniqueId to all ranks"});
  }
  if (ranks < 1 || rank < 0 || rank >= ranks)
    invalid(cat("there is no rank ", rank, " of ", ranks));
  Job job = job_from_environment({.rank = rank,
                                  .size = ranks,
                                  .master_address = place.address,
                                  .master_port = place.port,
                                  .rendezvous_file = {},
                                  .rendezvous = nullptr});
  job.token = place.token;
  if (rank == 0) {
    Fd listener(Listeners::of_process().release(place.token));
    if (ranks > 1) job.listen_fd = listener.release();  // alone there is nobody to listen to
    if (job.listen_fd < 0 && ranks > 1) {
      throw Error(ErrorCode::unsupported, "rank 0 is not where the ncclUniqueId was made",
                  {.remedy = "call ncclGetUniqueId in rank 0's process, once for a communicator"});
    }
  }
  auto comm = std::make_unique<ncclComm>();
  comm->device = cuda::current_device();
  comm->group = place.token;
  comm->communicator = Communicator::init(job);
  Members::of_process().add(*comm);
  return comm.release();
}

ncclComm_t part_of(ncclComm& comm, Communicator part, const std::string& name) {
  auto made = std::make_unique<ncclComm>();
  made->device = comm.device;
  made->group = cat(comm.group, '/', name);
  made->communicator = std::move(part);
  Members::of_process().add(*made);
  return made.release();
}

void leave(ncclComm_t comm) {
  std::vector<std::jthread> threads;
  for (std::unique_ptr<ncclComm>& own : Members::of_process().remove(comm)) {
    threads.emplace_back([leaving = std::move(own)]() mutable { leaving.reset(); });
  }
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

void begin_group() {
  ++meetings.depth;
  group_begin();
}

void end_group() {
  if (meetings.depth == 0) {
    throw Error(ErrorCode::unsupported, "ncclGroupEnd without a ncclGroupStart");
  }
  std::exception_ptr failure;
  try {
    if (--meetings.depth == 0) all_at_a_time(std::exchange(meetings.by_rank, {}));
  } catch (...) {
    failure = std::current_exception();
  }
  group_end();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti::nccl
