// Kernels: code that was compiled for GPUs, its functions, and how they are launched.
#pragma once

#include <cstddef>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"

namespace tutti::cuda {

struct FunctionInfo {
  int registers = 0;        // of a thread
  size_t local_bytes = 0;   // of a thread; more than 0: registers are spilled to memory
  size_t shared_bytes = 0;  // of a block, beside those that a launch asks for
  int most_threads = 0;     // of a block
};

FunctionInfo function_info(CUfunction function);
// Needed once for launches that ask for more than 48 KiB a block.
void allow_shared_bytes(CUfunction function, size_t bytes);

// In one context; the code stays loaded while this lives.
class Module {
 public:
  // `image`: a cubin, fat binary or PTX. Throws Error(unsupported) where it has nothing for this
  // GPU.
  Module(const Context& context, const void* image);
  // Throws Error(unsupported) where it has none of the name.
  CUfunction function(const char* name) const;

 private:
  Context context_;
  CUmodule handle_ = nullptr;
  Cleanup unload_;
};

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;  // of a block
  unsigned shared_bytes = 0;
};

// `parameters` has a pointer to each of them; they are copied before this returns. The stream's
// context is current.
void launch(CUfunction function, const Grid& grid, CUstream stream, void** parameters);

// A kernel of one parameter.
template <typename Parameter>
void launch(CUfunction function, const Grid& grid, CUstream stream, const Parameter& parameter) {
  void* parameters[] = {const_cast<Parameter*>(&parameter)};
  launch(function, grid, stream, static_cast<void**>(parameters));
}

}  // namespace tutti::cuda
