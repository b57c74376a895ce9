// The kernels of collectives/gpu, compiled for the emulated GPU.
#pragma once

#include <span>
#include <string_view>

#include "collectives/gpu/run_call.h"
#include "tests/support/host_gpu/grid.h"

namespace tutti::host_gpu {

std::span<const NamedKernel> kernels();
// Returns null if there is no such kernel.
const NamedKernel* find_kernel(std::string_view name);

template <typename E, typename Rules = gpu::Rules>
constexpr NamedKernel kernel_of(const char* name) {
  return {.name = name,
          .run =
              [](Thread& thread, void** parameters) {
                gpu::run_call<E, Rules>(thread, *static_cast<const gpu::Launch*>(parameters[0]));
              },
          .parameter_bytes = sizeof(gpu::Launch)};
}

}  // namespace tutti::host_gpu
