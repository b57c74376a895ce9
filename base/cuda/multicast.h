// Multicast over NVSwitch (NVLS): one range of addresses that stands for equally large memory of
// several GPUs. What a kernel stores there (multimem.st, .red) goes to all of them, what it loads
// (multimem.ld_reduce) is their sum; ordinary loads and stores must not touch it.
//
// All ranks, one of each device, in this order:
//
//     rank 0                                    the others
//     Multicast mine(context, devices, bytes)
//     mine.exported()  ------ exchanged ----->  Multicast mine(context, received)
//                    barrier: all devices have been added
//     mine.bind(memory, bytes)                  mine.bind(memory, bytes)
//                    barrier: all memory is bound; kernels may use data()
//                    ... all kernels have ended; barrier
//                    whoever has one destroys it, then its memory
//
// The driver waits in bind() for devices that are missing, for ever: hence the first barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cleanup.h"
#include "base/cuda/allocation_handle.h"
#include "base/cuda/device.h"
#include "base/cuda/peer_memory.h"

namespace tutti::cuda {

// Plain bytes. The creator's Multicast must live until all have imported it.
struct ExportedMulticast {
  uint64_t size = 0;
  uint64_t granularity = 0;
  ShareableHandle handle = {};
};
static_assert(std::is_trivially_copyable_v<ExportedMulticast>);

// Of a device's memory that is to be bound: no fewer bytes than these.
size_t round_up_for_multicast(const Context& context, size_t bytes);

class Multicast {
 public:
  // Creates it for so many devices, of at least so many bytes of each, and adds the context's.
  // Throws Error(unsupported) where the device has no multicast.
  Multicast(const Context& context, int devices, size_t bytes);
  // Imports one that another rank created, and adds the context's device.
  Multicast(const Context& context, const ExportedMulticast& exported);

  size_t size() const { return exported_.size; }
  const ExportedMulticast& exported() const { return exported_; }  // the creator's only

  // Binds the first size() bytes of this device's memory, of `bytes`, which are kept by the caller,
  // and maps all devices'. Once.
  void bind(const AllocationHandle& memory, size_t bytes);
  std::byte* data() const { return mapping_.data(); }  // once bound

 private:
  bool create(int devices, size_t bytes, Sharing sharing);
  void add_device();

  Context context_;
  CUdevice device_ = 0;
  AllocationHandle handle_;
  ExportedHandle exported_handle_;
  ExportedMulticast exported_;
  Cleanup unbind_;
  Mapping mapping_;
};

}  // namespace tutti::cuda
