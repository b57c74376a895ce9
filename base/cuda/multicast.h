// Multicast over NVSwitch (NVLS): one address range that maps equally large memory of several
// GPUs. A store to the range (multimem.st, .red) reaches the memory of all GPUs, and a load
// (multimem.ld_reduce) returns the sum over them; ordinary loads and stores must not touch it.
//
// All ranks, one per device, make these calls in this order:
//
//     rank 0                                    the others
//     Multicast mine(context, devices, bytes)
//     mine.exported()  ------ exchanged ----->  Multicast mine(context, received)
//                    barrier: all devices have been added
//     mine.bind(memory, bytes)                  mine.bind(memory, bytes)
//                    barrier: all memory is bound; kernels may use data()
//                    ... all kernels have ended; barrier
//                    every rank destroys its Multicast, then its memory
//
// The first barrier is needed because the driver blocks in bind() until all devices have been
// added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cleanup.h"
#include "base/cuda/allocation_handle.h"
#include "base/cuda/device.h"
#include "base/cuda/peer_memory.h"

namespace tutti::cuda {

// A multicast handle as plain bytes. The creator's Multicast must live until all ranks have
// imported it.
struct ExportedMulticast {
  uint64_t size = 0;
  uint64_t granularity = 0;
  ShareableHandle handle = {};
};
static_assert(std::is_trivially_copyable_v<ExportedMulticast>);

// Rounds `bytes` up to a size at which memory of the context's device can be bound.
size_t round_up_for_multicast(const Context& context, size_t bytes);

class Multicast {
 public:
  // Creates a multicast object for `devices` devices with at least `bytes` bytes each, and adds the
  // context's device. Throws Error(unsupported) if the device has no multicast.
  Multicast(const Context& context, int devices, size_t bytes);
  // Imports an object that another rank created, and adds the context's device.
  Multicast(const Context& context, const ExportedMulticast& exported);

  size_t size() const { return exported_.size; }
  const ExportedMulticast& exported() const { return exported_; }  // valid on the creator only

  // Binds the first size() bytes of this device's `memory` (`bytes` long, owned by the caller) and
  // maps the memory of all devices. May be called once.
  void bind(const AllocationHandle& memory, size_t bytes);
  std::byte* data() const { return mapping_.data(); }  // valid after bind()

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
