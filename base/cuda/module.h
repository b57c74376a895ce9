// GPU kernels: compiled code, its functions, and their launch.
#pragma once

#include <cstddef>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"

namespace tutti::cuda {

struct FunctionInfo {
  int registers = 0;        // registers per thread
  size_t local_bytes = 0;   // bytes per thread; above 0, registers are spilled to memory
  size_t shared_bytes = 0;  // bytes per block, without those that a launch requests in addition
  int most_threads = 0;     // maximum threads per block
};

FunctionInfo function_info(CUfunction function);
// Lets blocks of this kernel use `bytes` of shared memory. It must be called once before a launch
// that asks for more than 48 KiB per block.
void allow_shared_bytes(CUfunction function, size_t bytes);

// Code loaded into one context. The destructor unloads the code.
class Module {
 public:
  // Loads the code. `image`: a cubin, fat binary or PTX. Throws Error(unsupported) if it has no
  // code for this GPU.
  Module(const Context& context, const void* image);
  // Returns the kernel `name`. Throws Error(unsupported) if the module has none of that name.
  CUfunction function(const char* name) const;

 private:
  Context context_;
  CUmodule handle_ = nullptr;
  Cleanup unload_;
};

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;  // threads per block
  unsigned shared_bytes = 0;
};

// Launches a kernel. `parameters` has a pointer to each parameter; the parameters are copied before
// this returns. The stream's context must be current.
void launch(CUfunction function, const Grid& grid, CUstream stream, void** parameters);

// Launches a kernel that has one parameter.
template <typename Parameter>
void launch(CUfunction function, const Grid& grid, CUstream stream, const Parameter& parameter) {
  void* parameters[] = {const_cast<Parameter*>(&parameter)};
  launch(function, grid, stream, static_cast<void**>(parameters));
}

}  // namespace tutti::cuda
