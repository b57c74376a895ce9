// A GPU's memory in the hands of another rank: of another process by CUDA's IPC, of another thread
// of this one as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "transport/cuda/abi.h"
#include "transport/cuda/device.h"

namespace tutti::cuda {

// What one rank tells another of a place in its GPU's memory: plain bytes. The memory must stay
// until nobody has it open; CUDA does not say what happens else.
struct ExportedMemory {
  uint64_t process = 0;  // a number that no other process has, in whatever container
  uint64_t pointer = 0;  // as the exporting process has it
  uint64_t offset = 0;   // of the pointer in its allocation
  uint64_t size = 0;     // of the allocation, from its base
  CUipcMemHandle handle = {};
  Uuid device = {};
};
static_assert(std::is_trivially_copyable_v<ExportedMemory>);

// Of any device pointer that cuMemAlloc or cudaMalloc made, or one into the middle of that. A
// context of its device is current.
ExportedMemory export_memory(const void* device_pointer);

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
