#include "tests/training/support/fenced_backend.h"

#include <sys/mman.h>

#include <atomic>
#include <new>
#include <type_traits>

#include "training/kernels/cpu/kernels.h"

namespace tutti::training::testing {
namespace {

constexpr size_t kDistance = size_t{1} << 33;

std::atomic<int64_t> kernel_calls = 0;
std::atomic<int64_t> waits = 0;
std::atomic<int64_t> synchronized = 0;

template <bool is_const>
BasicTensor<is_const> on_host(BasicTensor<is_const> tensor) {
  if (tensor.backend == nullptr) return tensor;
  if (!tensor.empty()) tensor.data += kDistance;
  tensor.backend = nullptr;
  return tensor;
}
template <bool is_const>
BasicQkv<is_const> on_host(const BasicQkv<is_const>& all) {
  return {on_host(all.queries), on_host(all.keys), on_host(all.values)};
}
// Temporaries of kernels are in host memory.
Arena& on_host(Arena&) {
  thread_local Arena arena;
  return arena;
}
template <typename T>
const T& on_host(const T& other) {
  return other;
}

// Delays the errors of a kernel until the caller waits for it.
template <typename T>
Later<T> told_late(Later<T> found) {
  return Later<T>::when([found] {
    ++waits;
    return found.get();
  });
}

// Runs the CPU's kernel on the memory where the elements are.
template <auto kernel>
struct There;
template <typename Result, typename... Arguments, Result (*kernel)(Arguments...)>
struct There<kernel> {
  static Result call(Arguments... arguments) {
    ++kernel_calls;
    if constexpr (std::is_void_v<Result>) {
      kernel(on_host(arguments)...);
    } else {
      return told_late(kernel(on_host(arguments)...));
    }
  }
};

constexpr KernelTable kKernels = {
    .gelu = There<&cpu::gelu>::call,
    .gelu_backward = There<&cpu::gelu_backward>::call,
    .swiglu = There<&cpu::swiglu>::call,
    .swiglu_backward = There<&cpu::swiglu_backward>::call,
    .relu = There<&cpu::relu>::call,
    .relu_backward = There<&cpu::relu_backward>::call,
    .add = There<&cpu::add>::call,
    .scale = There<&cpu::scale>::call,
    .all_finite = There<&cpu::all_finite>::call,
    .zero = There<&cpu::zero>::call,
    .copy = There<&cpu::copy>::call,
    .convert = There<&cpu::convert>::call,
    .dropout = There<&cpu::dropout>::call,
    .dropout_add = There<&cpu::dropout_add>::call,
    .add_column_sums = There<&cpu::add_column_sums>::call,
    .add_values = There<&cpu::add_values>::call,
    .gemm = There<&cpu::gemm>::call,
    .quantized_gemm = There<&cpu::quantized_gemm>::call,
    .embedding = There<&cpu::embedding>::call,
    .embedding_backward = There<&cpu::embedding_backward>::call,
    .rope = There<&cpu::rope>::call,
    .causal_attention = There<&cpu::causal_attention>::call,
    .causal_attention_backward = There<&cpu::causal_attention_backward>::call,
    .merge_attention = There<&cpu::merge_attention>::call,
    .cross_entropy_sums = There<&cpu::cross_entropy_sums>::call,
    .cross_entropy = There<&cpu::cross_entropy>::call,
    .cross_entropy_backward = There<&cpu::cross_entropy_backward>::call,
    .squared_error = There<&cpu::squared_error>::call,
    .layer_norm = There<&cpu::layer_norm>::call,
    .layer_norm_backward = There<&cpu::layer_norm_backward>::call,
    .layer_norm_gradients = There<&cpu::layer_norm_gradients>::call,
    .rms_norm = There<&cpu::rms_norm>::call,
    .rms_norm_backward = There<&cpu::rms_norm_backward>::call,
    .rms_norm_gradients = There<&cpu::rms_norm_gradients>::call,
    .column_moments = There<&cpu::column_moments>::call,
    .batch_norm = There<&cpu::batch_norm>::call,
    .batch_norm_sums = There<&cpu::batch_norm_sums>::call,
    .batch_norm_backward = There<&cpu::batch_norm_backward>::call,
    .convolution = There<&cpu::convolution>::call,
    .convolution_backward_input = There<&cpu::convolution_backward_input>::call,
    .convolution_backward_weight = There<&cpu::convolution_backward_weight>::call,
    .max_pool = There<&cpu::max_pool>::call,
    .max_pool_backward = There<&cpu::max_pool_backward>::call,
    .average_pool = There<&cpu::average_pool>::call,
    .average_pool_backward = There<&cpu::average_pool_backward>::call,
};

class FencedBackend final : public Backend {
 public:
  FencedBackend() {
    void* all = ::mmap(nullptr, 2 * kDistance, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(all);
    ::mprotect(start_ + kDistance, kDistance, PROT_READ | PROT_WRITE);
  }
  FencedBackend(const FencedBackend&) = delete;
  FencedBackend& operator=(const FencedBackend&) = delete;

  std::string_view name() const override { return "fenced"; }
  BackendMemory allocate(size_t bytes) const override {
    const size_t first = used_.fetch_add((bytes + 4095) / 4096 * 4096);
    if (first + bytes > kDistance) throw std::bad_alloc();
    return {start_ + first, [](std::byte*) {}};
  }
  const KernelTable& kernels() const override { return kKernels; }
  void synchronize() const override { ++synchronized; }

 private:
  std::byte* start_;
  mutable std::atomic<size_t> used_ = 0;
};

}  // namespace

const Backend& fenced_backend() {
  static const FencedBackend backend;
  return backend;
}

FencedCalls fenced_calls() { return {kernel_calls, waits, synchronized}; }

}  // namespace tutti::training::testing
