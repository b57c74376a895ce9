// A backend: a memory space for tensors and the kernels that compute there. Modules see only
// tensors and kernels (kernels/): each kernel runs in the memory space of its tensors. A null
// Backend pointer means the host's memory with the CPU's kernels. training/README.md explains how
// to add a backend.
//
// A backend has one stream, which runs submitted work in order, possibly asynchronously. Results
// for the host are of type Later (later.h), on which the host can wait.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tutti::training {

struct KernelTable;

// Memory that is freed with the last copy of the pointer.
using BackendMemory = std::shared_ptr<std::byte[]>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // Returns uninitialized memory, aligned at least to a cache line. Throws Error(system) when out
  // of memory.
  virtual BackendMemory allocate(size_t bytes) const = 0;
  // Returns the backend's kernels; copies and fills are kernels too (kernels/elementwise.h).
  virtual const KernelTable& kernels() const = 0;
  // Blocks until all submitted work is complete.
  virtual void synchronize() const = 0;
};

// Allocates memory of `backend`; null means the host's memory, whose pages the system commits on
// first touch.
BackendMemory allocate(const Backend* backend, size_t bytes);

}  // namespace tutti::training
