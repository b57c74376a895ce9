// Physical memory of a GPU, or a multicast object, apart from the addresses where it is mapped:
// what CUDA calls a generic allocation handle. It is made, handed to other processes, and mapped.
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

// How memory gets into the hands of other processes.
enum class Sharing : uint32_t {
  ipc,         // CUDA's IPC: what cudaMalloc made
  descriptor,  // a file descriptor, which processes of one host take out of one another
  fabric,      // bytes that all hosts of one NVLink domain understand
};

// What one process tells another: plain bytes. Whatever they stand for must stay until all have it.
struct ShareableHandle {
  Sharing sharing = Sharing::ipc;
  std::array<std::byte, CU_IPC_HANDLE_SIZE> bytes = {};
};
static_assert(std::is_trivially_copyable_v<ShareableHandle>);

class AllocationHandle {
 public:
  AllocationHandle() = default;
  // Takes over what the driver made.
  AllocationHandle(const Context& context, CUmemGenericAllocationHandle made);

  CUmemGenericAllocationHandle get() const { return handle_; }
  explicit operator bool() const { return handle_ != 0; }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  Cleanup release_;
};

// What a device pointer is mapped from; empty where it is none of virtual memory management.
AllocationHandle handle_of(const Context& context, const void* mapped);
// Of `fabric` and `descriptor`, those by which it was made to be shared, best first.
std::vector<Sharing> sharings_of(const AllocationHandle& handle);

// What of `fabric` and `descriptor` the device, the driver and the system allow, best first.
std::vector<Sharing> sharings_of(int device);
CUmemAllocationHandleType handle_type(Sharing sharing);  // not of ipc
// Whether CUDA refuses a way of sharing that its device claims to have: another may do. A fabric
// handle needs an IMEX channel of this user, which only the call that makes it looks for.
bool is_refused(CUresult result);

// An allocation handle that was made with that sharing; other processes can import it while this
// lives.
class ExportedHandle {
 public:
  ExportedHandle() = default;
  ExportedHandle(const AllocationHandle& handle, Sharing sharing);
  const ShareableHandle& shareable() const { return shareable_; }

 private:
  ShareableHandle shareable_;
  Fd descriptor_;
};

// Of this process or another.
AllocationHandle import_handle(const Context& context, const ShareableHandle& shareable);

// Addresses at which the context's device reads and writes what is behind a handle. Its destructor
// waits for the device's work, as cudaFree does.
class Mapping {
 public:
  Mapping() = default;
  // `bytes`: of the whole handle; `alignment`: its granularity, or 0.
  Mapping(const Context& context, const AllocationHandle& handle, size_t bytes, size_t alignment);
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  Cleanup free_;
};

// Lets the context's device, too, use what another has mapped at these addresses of this process.
void allow_access(const Context& context, const void* mapped, size_t bytes);

// Not 0; the same for all of this process, and another in all other processes, in whatever
// container.
uint64_t this_process();

inline size_t round_up(size_t bytes, size_t granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace tutti::cuda
