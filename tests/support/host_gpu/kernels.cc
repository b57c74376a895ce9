#include "tests/support/host_gpu/kernels.h"

#include <algorithm>
#include <array>

namespace tutti::host_gpu {

namespace {

using namespace tutti::kernels;  // NOLINT: elements, each named once
using gpu::PairOf;

constexpr std::array kKernels = {
    kernel_of<Integer<int8_t, uint8_t>>("tutti_run_i8"),
    kernel_of<Integer<int16_t, uint16_t>>("tutti_run_i16"),
    kernel_of<Integer<int32_t, uint32_t>>("tutti_run_i32"),
    kernel_of<Integer<int64_t, uint64_t>>("tutti_run_i64"),
    kernel_of<Integer<uint8_t, uint8_t>>("tutti_run_u8"),
    kernel_of<Integer<uint16_t, uint16_t>>("tutti_run_u16"),
    kernel_of<Integer<uint32_t, uint32_t>>("tutti_run_u32"),
    kernel_of<Integer<uint64_t, uint64_t>>("tutti_run_u64"),
    kernel_of<Small<F16>>("tutti_run_f16"),
    kernel_of<Small<BF16>>("tutti_run_bf16"),
    kernel_of<Float<float>>("tutti_run_f32"),
    kernel_of<Float<double>>("tutti_run_f64"),
    kernel_of<Small<F8E4M3>>("tutti_run_f8e4m3"),
    kernel_of<Small<F8E5M2>>("tutti_run_f8e5m2"),
    kernel_of<PairOf<float, int32_t>>("tutti_run_f32_i32"),
    kernel_of<PairOf<double, int64_t>>("tutti_run_f64_i64"),
    kernel_of<PairOf<int32_t, int32_t>>("tutti_run_i32_i32"),
    kernel_of<PairOf<int64_t, int64_t>>("tutti_run_i64_i64"),
};

}  // namespace

std::span<const NamedKernel> kernels() { return kKernels; }

const NamedKernel* find_kernel(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kKernels, [&](const NamedKernel& kernel) { return kernel.name == name; });
  return found == kKernels.end() ? nullptr : found;
}

}  // namespace tutti::host_gpu
