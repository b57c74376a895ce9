// GPU memory, pinned host memory, and pointer classification. peer_memory.h has memory of other
// processes.
#pragma once

#include <cstddef>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"

namespace tutti::cuda {

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// Device memory, not accessible to the host. It is aligned to 256 bytes and uninitialised. The
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

// Pinned host memory that kernels of all devices can access.
class PinnedMemory {
 public:
  PinnedMemory(const Context& context, size_t bytes);

  std::byte* data() const { return data_; }
  std::byte* device_data() const { return device_data_; }  // the address by which kernels access it
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::byte* device_data_ = nullptr;
  size_t size_ = 0;
  Cleanup free_;
};

enum class MemoryKind : int {
  host,     // host memory unknown to CUDA
  pinned,   // host memory allocated or registered by CUDA
  device,   // memory of a GPU
  managed,  // managed memory, which migrates between host and GPUs
};

struct PointerInfo {
  MemoryKind kind = MemoryKind::host;
  int device = -1;              // ordinal of the device; -1: none
  CUcontext context = nullptr;  // context of the allocation, if any
};

PointerInfo describe(const void* pointer);

// The whole allocation that contains a device pointer.
struct Allocation {
  std::byte* base = nullptr;
  size_t size = 0;
};
Allocation allocation_of(const void* device_pointer);

// Copies between memory of any kind, in stream order. The copy is asynchronous only if host memory
// is pinned. The stream's context must be current.
void copy_async(void* to, const void* from, size_t bytes, CUstream stream);
void fill_async(void* to, std::byte value, size_t bytes, CUstream stream);

}  // namespace tutti::cuda
