// NCCL's functions for communicators, memory and errors.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/text.h"
#include "bindings/nccl/comm.h"

using tutti::cat;
using tutti::Communicator;
using tutti::Error;
using tutti::ErrorCode;
using tutti::nccl::checked;
using tutti::nccl::failed;
using tutti::nccl::guarded;
using tutti::nccl::invalid;
using tutti::nccl::meet_others;
using tutti::nccl::unsupported;
using tutti::nccl::use;
using tutti::nccl::Use;

namespace {

// The NCCL version whose interface this library implements.
constexpr int kVersion = 22809;

// The allocations of ncclMemAlloc, by address.
struct Allocations {
  std::mutex mutex;
  std::map<void*, tutti::Memory<std::byte>> memory;

  static Allocations& of_process() {
    static Allocations& allocations = *std::make_unique<Allocations>().release();
    return allocations;
  }
};

std::vector<int> survivors(const Communicator& comm, const int* excluded, int count) {
  std::vector<int> left;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (std::find(excluded, excluded + count, rank) == excluded + count) left.push_back(rank);
  }
  return left;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NCCL's names

// ---- ranks

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&] { checked(id, "the id") = tutti::nccl::make_id(); });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return guarded([&] {
    checked(comm, "the output pointer for the communicator") = nullptr;
    meet_others(comm, [=] { *comm = tutti::nccl::join(id, rank, ranks); });
  });
}

// Joins the job. The configuration is ignored. (Calls may block even in non-blocking mode.)
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  return ncclCommInitRank(comm, ranks, id, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                      ncclUniqueId* ids, ncclConfig_t*) {
  if (id_count < 1 || ids == nullptr) {
    return failed(ErrorCode::invalid_argument, "ncclCommInitRankScalable needs an id");
  }
  return ncclCommInitRank(comm, ranks, ids[0], rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  return guarded([&] {
    checked(comms, "the output pointer for the communicators");
    if (count < 1) invalid(cat("invalid number of devices ", count));
    // The contexts are created before the group begins, because creating a context throws if the
    // device is missing.
    std::vector<tutti::cuda::Context> contexts;
    for (int rank = 0; rank < count; ++rank) {
      contexts.emplace_back(devices == nullptr ? rank : devices[rank]);
      comms[rank] = nullptr;
    }
    const ncclUniqueId id = tutti::nccl::make_id();
    tutti::nccl::begin_group();
    for (int rank = 0; rank < count; ++rank) {
      const tutti::cuda::CurrentContext current(contexts[static_cast<size_t>(rank)]);
      meet_others(&comms[rank], [=] { comms[rank] = tutti::nccl::join(id, rank, count); });
    }
    tutti::nccl::end_group();
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded([&] { use(comm); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&] {
    if (comm != nullptr) tutti::nccl::leave(comm);
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&] {
    if (comm != nullptr) tutti::nccl::abort(comm);
  });
}

ncclResult_t ncclCommRevoke(ncclComm_t, int) {
  return guarded(
      [] { unsupported("ncclCommRevoke", "call ncclCommAbort, and create a new communicator"); });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  return guarded([&] {
    const Use own = use(comm);
    checked(made, "the output pointer for the communicator") = nullptr;
    const int number = ++own->splits;
    meet_others(own, [color, key, made, number](ncclComm& whole) {
      Communicator part = whole.communicator.split(color == NCCL_SPLIT_NOCOLOR ? -1 : color, key);
      if (color == NCCL_SPLIT_NOCOLOR) return;
      *made = tutti::nccl::part_of(whole, std::move(part), cat("split ", number, " color ", color));
    });
  });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* made,
                            ncclConfig_t*, int flags) {
  return guarded([&] {
    const Use own = use(comm);
    checked(made, "the output pointer for the communicator") = nullptr;
    if (flags != NCCL_SHRINK_DEFAULT) {
      unsupported("NCCL_SHRINK_ABORT", "call ncclCommAbort, and create a new communicator");
    }
    const std::vector<int> left = survivors(own->communicator, excluded, excluded_count);
    const int number = ++own->splits;
    meet_others(own, [left, made, number](ncclComm& whole) {
      *made = tutti::nccl::part_of(whole, whole.communicator.create(left), cat("shrink ", number));
    });
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded([&] { checked(count, "the count") = use(comm)->communicator.size(); });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded([&] { checked(rank, "the rank") = use(comm)->communicator.rank(); });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return guarded([&] { checked(device, "the device") = use(comm)->device; });
}

// ---- groups

ncclResult_t ncclGroupStart() {
  return guarded([] { tutti::nccl::begin_group(); });
}

ncclResult_t ncclGroupEnd() {
  return guarded([] { tutti::nccl::end_group(); });
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return guarded([] { unsupported("ncclGroupSimulateEnd", "use `tutti explain --gpu`"); });
}

// ---- errors

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "CUDA failed";
    case ncclSystemError:
      return "an operating system or network call failed";
    case ncclInternalError:
      return "a bug in Tutti";
    case ncclInvalidArgument:
      return "an argument is invalid";
    case ncclInvalidUsage:
      return "the call is not supported, or does not match the other ranks' calls";
    case ncclRemoteError:
      return "another rank failed, or left";
    case ncclInProgress:
      return "in progress";
  }
  return "unknown NCCL error code";
}

const char* ncclGetLastError(ncclComm_t) { return tutti::nccl::last_error().c_str(); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded([&] {
    const std::optional<Error> failure = use(comm)->communicator.failure();
    checked(error, "the error") = failure ? failed(failure->code(), failure->what()) : ncclSuccess;
  });
}

ncclResult_t ncclGetVersion(int* version) {
  return guarded([&] { checked(version, "the version") = kVersion; });
}

void ncclResetDebugInit() {}

// ---- memory

ncclResult_t ncclMemAlloc(void** memory, size_t size) {
  return guarded([&] {
    checked(memory, "the output pointer for the memory") = nullptr;
    auto made = Communicator::allocate_on_device<std::byte>(std::max<size_t>(size, 1));
    Allocations& all = Allocations::of_process();
    const std::lock_guard lock(all.mutex);
    void* const data = made.get();
    all.memory.emplace(data, std::move(made));
    *memory = data;
  });
}

ncclResult_t ncclMemFree(void* memory) {
  return guarded([&] {
    if (memory == nullptr) return;
    Allocations& all = Allocations::of_process();
    const std::lock_guard lock(all.mutex);
    if (all.memory.erase(memory) == 0) invalid("ncclMemFree: the memory is not from ncclMemAlloc");
  });
}

// Does nothing, because registration is local to one rank, while Tutti's windows are collective.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t, void** handle) {
  return guarded([&] {
    use(comm);
    checked(handle, "the handle") = memory;
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return guarded([&] { use(comm); });
}

// Registers a window. A NULL window means that there is no faster path.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                    ncclWindow_t* window, int) {
  return guarded([&] {
    const Use own = use(comm);
    checked(window, "the output pointer for the window") = nullptr;
    meet_others(own, [=](ncclComm& whole) {
      tutti::Registration made = whole.communicator.register_window(memory, bytes);
      if (!made) return;
      *window = std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{std::move(made)}).release();
    });
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return guarded([&] {
    std::unique_ptr<ncclWindow_vidmem> ended(window);  // freed even if `comm` no longer exists
    const Use own = use(comm);
    ended.reset();
  });
}
// NOLINTEND(readability-identifier-naming)
