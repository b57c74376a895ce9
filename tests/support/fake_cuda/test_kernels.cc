#include "tests/support/fake_cuda/test_kernels.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/kernels.h"
#include "tests/support/host_gpu/kernels.h"

namespace {

using tutti::host_gpu::NamedKernel;
using tutti::host_gpu::Thread;
using tutti::testing::AddParameter;
using tutti::testing::FillParameter;
using tutti::testing::SpinParameter;

uint64_t first(const Thread& thread) { return thread.block() * thread.threads() + thread.index(); }
uint64_t stride(const Thread& thread) { return uint64_t{thread.blocks()} * thread.threads(); }

void fill(Thread& thread, void** parameters) {
  const auto& parameter = *static_cast<const FillParameter*>(parameters[0]);
  for (uint64_t i = first(thread); i < parameter.count; i += stride(thread)) {
    parameter.to[i] = parameter.value;
  }
}

void add(Thread& thread, void** parameters) {
  const auto& parameter = *static_cast<const AddParameter*>(parameters[0]);
  for (uint64_t i = first(thread); i < parameter.count; i += stride(thread)) {
    parameter.to[i] += parameter.from[i];
  }
}

void spin(Thread&, void** parameters) {
  const auto& parameter = *static_cast<const SpinParameter*>(parameters[0]);
  std::atomic_ref(*parameter.begun).store(1);
  while (std::atomic_ref(const_cast<uint64_t&>(*parameter.go)).load() == 0) {
    std::this_thread::yield();
  }
}

// The library's kernels and the tests' own.
std::vector<NamedKernel> all_kernels() {
  const auto library = tutti::host_gpu::kernels();
  std::vector<NamedKernel> kernels(library.begin(), library.end());
  kernels.push_back({"fill", fill, sizeof(FillParameter)});
  kernels.push_back({"add", add, sizeof(AddParameter)});
  kernels.push_back({"spin", spin, sizeof(SpinParameter)});
  return kernels;
}

}  // namespace

std::span<const NamedKernel> fake_cuda_kernels() {
  static const auto* const kernels = new std::vector(all_kernels());  // streams outlive main()
  return *kernels;
}
