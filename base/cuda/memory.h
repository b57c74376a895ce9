// Memory of GPUs, the host's memory that they reach, and what a pointer points to. That of other
// processes: peer_memory.h.
#pragma once

#include <cstddef>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"

namespace tutti::cuda {

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// Of a device; the host must not touch it. Aligned to 256 bytes, of any contents at first. Its
// destructor waits for the device's work, as cudaFree does.
class DeviceMemory {
 public:
  DeviceMemory(const Context& context, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Cleanup free_;
};

// Of the host, pinned, and within reach of the kernels of all devices.
class PinnedMemory {
 public:
  PinnedMemory(const Context& context, size_t bytes);

  std::byte* data() const { return data_; }
  std::byte* device_data() const { return device_data_; }  // where kernels find it
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::byte* device_data_ = nullptr;
  size_t size_ = 0;
  Cleanup free_;
};

enum class MemoryKind : int {
  host,     // CUDA knows nothing of it
  pinned,   // the host's, allocated or registered by CUDA
  device,   // a GPU's
  managed,  // it moves between the host and the GPUs
};

struct PointerInfo {
  MemoryKind kind = MemoryKind::host;
  int device = -1;              // ordinal; -1: of none
  CUcontext context = nullptr;  // in which it was allocated, if in any
};

PointerInfo describe(const void* pointer);

// The whole allocation that a device pointer lies in.
struct Allocation {
  std::byte* base = nullptr;
  size_t size = 0;
};
Allocation allocation_of(const void* device_pointer);

// In the order of the stream, from and to memory of any kind. The host's memory must be pinned to
// be copied while the caller goes on. The stream's context is current.
void copy_async(void* to, const void* from, size_t bytes, CUstream stream);
void fill_async(void* to, std::byte value, size_t bytes, CUstream stream);

}  // namespace tutti::cuda
