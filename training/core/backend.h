// Where the memory of tensors is, and what computes there. Modules see tensors and kernels
// (kernels/) alone: each kernel is called in the memory space of its tensors, and nothing above
// says which one that is. Where a backend is named by a pointer, null is the host's memory, with
// the CPU's kernels. training/README.md tells how a backend is added.
//
// A backend has one stream: it does what it is asked for in that order, maybe later. What it finds
// for the host is a Later (later.h), which is the event that the host may wait for.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tutti::training {

struct KernelTable;

// Given back with the last copy of the pointer.
using BackendMemory = std::shared_ptr<std::byte[]>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // Aligned to a cache line at least, of any contents. Throws Error(system) where there is none.
  virtual BackendMemory allocate(size_t bytes) const = 0;
  // Copying and filling are kernels (kernels/elementwise.h).
  virtual const KernelTable& kernels() const = 0;
  // Returns when all that was asked for is done.
  virtual void synchronize() const = 0;
};

// The backend's memory; null: the host's, whose pages are the kernel's until they are touched.
BackendMemory allocate(const Backend* backend, size_t bytes);

}  // namespace tutti::training
