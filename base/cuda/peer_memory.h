// A GPU's memory in the hands of another rank: of another process by a handle, of another thread of
// this one as it is.
//
// Memory that is allocated to be shared (SharedMemory) comes from CUDA's virtual memory management
// where that can be handed over, as a fabric handle or a descriptor; else, as memory that a caller
// brings (export_memory), from cudaMalloc, by CUDA's IPC.
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

// What one rank tells another of a place in its GPU's memory: plain bytes. The memory must stay
// until nobody has it open; CUDA does not say what happens else.
struct ExportedMemory {
  uint64_t process = 0;  // this_process()
  uint64_t pointer = 0;  // as the exporting process has it
  uint64_t offset = 0;   // of the pointer in its allocation
  uint64_t size = 0;     // of the allocation, from its base
  ShareableHandle handle = {};
  Uuid device = {};
};
static_assert(std::is_trivially_copyable_v<ExportedMemory>);

// Of any device pointer that cuMemAlloc or cudaMalloc made, or one into the middle of that. A
// context of its device is current.
ExportedMemory export_memory(const void* device_pointer);

// Memory that a caller brings, made ready for other ranks: as export_memory(), or by the handle
// that it was mapped from. Lives until nobody will import it any more.
class OfferedMemory {
 public:
  // Throws Error(unsupported) where it cannot be shared: it was not made for that.
  OfferedMemory(const Context& context, const void* device_pointer);

  const ExportedMemory& exported() const { return exported_; }  // of the pointer
  // Empty where the memory is not from virtual memory management.
  const AllocationHandle& handle() const { return handle_; }

 private:
  AllocationHandle handle_;
  ExportedHandle exported_handle_;
  ExportedMemory exported_;
};

// Of a device, at least so many bytes, to be shared and perhaps bound to a Multicast.
class SharedMemory {
 public:
  SharedMemory(const Context& context, size_t bytes);

  std::byte* data() const;
  size_t size() const { return exported_.size; }
  const ExportedMemory& exported() const { return exported_; }  // of data()
  // Empty where the memory is not from virtual memory management.
  const AllocationHandle& handle() const { return handle_; }

 private:
  bool create(const Context& context, size_t bytes, Sharing sharing);

  AllocationHandle handle_;
  ExportedHandle exported_handle_;
  Mapping mapping_;
  std::optional<DeviceMemory> plain_;  // where there is no handle
  ExportedMemory exported_;
};

// Such memory as `context` reaches it, for as long as this lives. Each allocation is opened once in
// a context, by whatever places of it are imported.
class ImportedMemory {
 public:
  ImportedMemory(const Context& context, const ExportedMemory& exported);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // from data() to the allocation's end

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> opened_;
};

}  // namespace tutti::cuda
