// Implements modules and kernels. Every module has the linked kernels, whatever its image.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/mix_bits.h"
#include "tests/support/fake_cuda/kernels.h"
#include "tests/support/fake_cuda/state.h"

struct CUmod_st {
  CUcontext context = nullptr;
};

namespace fake_cuda {
namespace {

// Reported maximum of threads per block. It is as small as that of a kernel with many registers,
// because a host has few processors for the threads.
constexpr unsigned kBestThreads = 16;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostSharedBytes = 232448;

using tutti::host_gpu::NamedKernel;

std::map<CUmodule, std::unique_ptr<CUmod_st>>& modules() {  // under the state's lock
  static auto* const modules =
      std::make_unique<std::map<CUmodule, std::unique_ptr<CUmod_st>>>().release();
  return *modules;
}

uint64_t number_of(const char* variable, uint64_t fallback) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

// Returns the next random number of the process.
uint64_t next_random() {
  static const uint64_t seed = number_of("FAKE_CUDA_SEED", 1);
  static std::atomic<uint64_t> count{0};
  return tutti::mix_bits(seed + ++count * tutti::kGolden);
}

// A kernel's handle is its row of the table.
const NamedKernel* kernel_of(CUfunction function) {
  for (const NamedKernel& kernel : fake_cuda_kernels()) {
    if (static_cast<const void*>(&kernel) == static_cast<const void*>(function)) return &kernel;
  }
  return nullptr;
}

}  // namespace

void delay() {
  static const uint64_t most = number_of("FAKE_CUDA_DELAY_US", 0);
  if (most > 0) std::this_thread::sleep_for(std::chrono::microseconds(next_random() % (most + 1)));
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return in_context([&](CUcontext current) {
    if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
    auto made = std::make_unique<CUmod_st>();
    made->context = current;
    *module = made.get();
    modules()[*module] = std::move(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return in_context([&](CUcontext) {
    return modules().erase(module) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return in_context([&](CUcontext) {
    if (!modules().contains(module)) return CUDA_ERROR_INVALID_HANDLE;
    for (const NamedKernel& kernel : fake_cuda_kernels()) {
      if (std::string_view(kernel.name) != name) continue;
      *function = reinterpret_cast<CUfunction>(const_cast<NamedKernel*>(&kernel));
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  if (kernel_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool is_threads = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
  *value = is_threads ? static_cast<int>(kBestThreads) : 0;
  if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) *value = 32;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (kernel_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  const bool fits = value >= 0 && static_cast<unsigned>(value) <= kMostSharedBytes;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y,
                        unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                        unsigned threads_z, unsigned shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  return in_context([&](CUcontext) {
    const NamedKernel* const kernel = kernel_of(function);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const bool is_flat = blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1;
    if (blocks_x == 0 || threads_x == 0 || threads_x > kMostThreads || !is_flat ||
        shared_bytes > kMostSharedBytes || parameters == nullptr || extra != nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto* const bytes = static_cast<const std::byte*>(parameters[0]);
    std::vector<std::max_align_t> copy(kernel->parameter_bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(copy.data(), bytes, kernel->parameter_bytes);
    return put(stream, [kernel, blocks_x, threads_x, shared_bytes, copy] {
      delay();
      void* parameter = const_cast<std::max_align_t*>(copy.data());
      tutti::host_gpu::run({.blocks = blocks_x,
                            .threads = threads_x,
                            .seed = next_random(),
                            .shared_bytes = shared_bytes},
                           *kernel, &parameter);
    });
  });
}

}  // extern "C"
