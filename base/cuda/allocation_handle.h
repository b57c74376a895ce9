// Physical memory of a GPU, or a multicast object, independent of the addresses where it is mapped:
// CUDA's generic allocation handle. It is created, exported to other processes, and mapped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"
#include "base/fd.h"

namespace tutti::cuda {

// Ways in which memory is shared with other processes.
enum class Sharing : uint32_t {
  ipc,         // CUDA IPC, for memory from cudaMalloc
  descriptor,  // a file descriptor, duplicated between processes of one host
  fabric,      // a fabric handle, valid on all hosts of one NVLink domain
};

// An exported handle as plain bytes. The exporter must keep the memory until all others have
// imported it.
struct ShareableHandle {
  Sharing sharing = Sharing::ipc;
  std::array<std::byte, CU_IPC_HANDLE_SIZE> bytes = {};
};
static_assert(std::is_trivially_copyable_v<ShareableHandle>);

class AllocationHandle {
 public:
  AllocationHandle() = default;
  // Takes ownership of a handle that the driver created.
  AllocationHandle(const Context& context, CUmemGenericAllocationHandle made);

  CUmemGenericAllocationHandle get() const { return handle_; }
  explicit operator bool() const { return handle_ != 0; }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  Cleanup release_;
};

// Returns the handle that the device address `mapped` is mapped from. The handle is empty if the
// memory does not come from CUDA's virtual memory management.
AllocationHandle handle_of(const Context& context, const void* mapped);
// Returns the ways of sharing (`fabric`, `descriptor`) with which the handle was created, best
// first.
std::vector<Sharing> sharings_of(const AllocationHandle& handle);

// Returns the ways of sharing (`fabric`, `descriptor`) that the device, the driver and the system
// allow, best first.
std::vector<Sharing> sharings_of(int device);
CUmemAllocationHandleType handle_type(Sharing sharing);  // must not be called for ipc
// Returns true if `result` means that CUDA refused a way of sharing, which can happen although the
// device claims to support it; another way may work. A fabric handle needs an IMEX channel of this
// user, and only the call that creates the handle looks for the channel.
bool is_refused(CUresult result);

// An allocation handle created with the given sharing; other processes can import it while this
// object lives.
class ExportedHandle {
 public:
  ExportedHandle() = default;
  ExportedHandle(const AllocationHandle& handle, Sharing sharing);
  const ShareableHandle& shareable() const { return shareable_; }

 private:
  ShareableHandle shareable_;
  Fd descriptor_;
};

// Imports a handle exported by this process or another.
AllocationHandle import_handle(const Context& context, const ShareableHandle& shareable);

// The addresses at which the context's device accesses an allocation handle. The destructor waits
// for the device's work, as cudaFree does.
class Mapping {
 public:
  Mapping() = default;
  // Maps the handle. `bytes`: size of the whole handle; `alignment`: its granularity, or 0.
  Mapping(const Context& context, const AllocationHandle& handle, size_t bytes, size_t alignment);
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  Cleanup free_;
};

// Grants the context's device access to memory that another device has mapped in this process.
void allow_access(const Context& context, const void* mapped, size_t bytes);

// Returns a nonzero id of this process. No other process has the same id, not even in another
// container.
uint64_t this_process();

inline size_t round_up(size_t bytes, size_t granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace tutti::cuda
