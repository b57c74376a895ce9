// A backend: the memory space of tensors and the kernels that compute there. Modules see only
// tensors and kernels (kernels/): each kernel runs in the memory space of its tensors. A null
// Backend pointer means the host's memory with the CPU's kernels. training/README.md explains how
// to add a backend.
//
// A backend has one stream: it runs what is submitted in order, possibly asynchronously. A result
// for the host is a Later (later.h), which is the event that the host may wait for.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tutti::training {

struct KernelTable;

// Freed with the last copy of the pointer.
using BackendMemory = std::shared_ptr<std::byte[]>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // Returns uninitialized memory, aligned at least to a cache line. Throws Error(system) when out
  // of memory.
  virtual BackendMemory allocate(size_t bytes) const = 0;
  // Copying and filling are kernels (kernels/elementwise.h).
  virtual const KernelTable& kernels() const = 0;
  // Blocks until everything submitted so far is done.
  virtual void synchronize() const = 0;
};

// Memory of `backend`; null: the host's, whose pages are committed on first touch.
BackendMemory allocate(const Backend* backend, size_t bytes);

}  // namespace tutti::training
