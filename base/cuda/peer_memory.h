// GPU memory shared with other ranks. Ranks in different processes exchange a handle; ranks that
// are threads of one process use the pointer itself.
//
// SharedMemory comes from CUDA's virtual memory management if the system can share such memory by a
// fabric handle or a descriptor. Otherwise it comes from cudaMalloc and is shared by CUDA IPC. The
// caller's own memory is shared in the same ways (OfferedMemory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

#include "base/cuda/allocation_handle.h"
#include "base/cuda/device.h"
#include "base/cuda/memory.h"

namespace tutti::cuda {

// The location of a pointer into a rank's GPU memory, as plain bytes. The exporter must keep the
// memory allocated until every importer has closed it; otherwise CUDA's behaviour is undefined.
struct ExportedMemory {
  uint64_t process = 0;  // result of this_process()
  uint64_t pointer = 0;  // address in the exporting process
  uint64_t offset = 0;   // offset of the pointer in its allocation
  uint64_t size = 0;     // bytes of the allocation, from its base
  ShareableHandle handle = {};
  Uuid device = {};
};
static_assert(std::is_trivially_copyable_v<ExportedMemory>);

// Exports any pointer into memory from cuMemAlloc or cudaMalloc. A context of its device must be
// current.
ExportedMemory export_memory(const void* device_pointer);

// The caller's memory, exported for other ranks as export_memory() does, or by the handle that it
// was mapped from. It must live until the last rank has imported it.
class OfferedMemory {
 public:
  // Exports the memory at `device_pointer`. Throws Error(unsupported) if it was allocated in a way
  // that cannot be shared.
  OfferedMemory(const Context& context, const void* device_pointer);

  const ExportedMemory& exported() const { return exported_; }  // refers to the pointer passed in
  // Returns the handle that the memory is mapped from. The handle is empty if the memory does not
  // come from virtual memory management.
  const AllocationHandle& handle() const { return handle_; }

 private:
  AllocationHandle handle_;
  ExportedHandle exported_handle_;
  ExportedMemory exported_;
};

// At least `bytes` bytes of device memory that can be shared and, if supported, bound to a
// Multicast.
class SharedMemory {
 public:
  SharedMemory(const Context& context, size_t bytes);

  std::byte* data() const;
  size_t size() const { return exported_.size; }
  const ExportedMemory& exported() const { return exported_; }  // refers to data()
  // Returns the handle of the memory. The handle is empty if the memory does not come from virtual
  // memory management.
  const AllocationHandle& handle() const { return handle_; }

 private:
  bool create(const Context& context, size_t bytes, Sharing sharing);

  AllocationHandle handle_;
  ExportedHandle exported_handle_;
  Mapping mapping_;
  std::optional<DeviceMemory> plain_;  // used if there is no handle
  ExportedMemory exported_;
};

// Another rank's memory, which kernels of `context` can access while this object lives. Each
// allocation is opened once per context, however many of its locations are imported.
class ImportedMemory {
 public:
  ImportedMemory(const Context& context, const ExportedMemory& exported);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // bytes from data() to the end of the allocation

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> opened_;
};

}  // namespace tutti::cuda
