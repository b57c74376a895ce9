#include "training/backend.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "training/kernels/cpu/kernels.h"
#include "training/models/gpt.h"
#include "training/models/llama.h"
#include "training/models/mlp_model.h"

namespace tutti::training::testing {
namespace {

// A backend whose memory only its own kernels reach, like a device's: what has an address in the
// first half of a reservation lies kDistance further on, and whoever touches the address is killed.
constexpr size_t kDistance = size_t{1} << 32;

std::atomic<int64_t> kernel_calls = 0;
std::atomic<int64_t> waits = 0;

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
// Temporaries are the CPU kernels' own.
Arena& on_host(Arena&) {
  thread_local Arena arena;
  return arena;
}
template <typename T>
const T& on_host(const T& other) {
  return other;
}

// What a kernel finds is told when it is waited for.
template <typename T>
Later<T> told_late(Later<T> found) {
  return Later<T>::when([found] {
    ++waits;
    return found.get();
  });
}

// The CPU's kernel, where the elements are.
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
    .add_column_sums = There<&cpu::add_column_sums>::call,
    .add_values = There<&cpu::add_values>::call,
    .gemm = There<&cpu::gemm>::call,
    .embedding = There<&cpu::embedding>::call,
    .embedding_backward = There<&cpu::embedding_backward>::call,
    .rope = There<&cpu::rope>::call,
    .causal_attention = There<&cpu::causal_attention>::call,
    .causal_attention_backward = There<&cpu::causal_attention_backward>::call,
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
    free_ = static_cast<std::byte*>(all);
    ::mprotect(free_ + kDistance, kDistance, PROT_READ | PROT_WRITE);
  }
  FencedBackend(const FencedBackend&) = delete;
  FencedBackend& operator=(const FencedBackend&) = delete;

  std::string_view name() const override { return "fenced"; }
  // Never given back: tests take little.
  BackendMemory allocate(size_t bytes) const override {
    return {std::exchange(free_, free_ + (bytes + 4095) / 4096 * 4096), [](std::byte*) {}};
  }
  const KernelTable& kernels() const override { return kKernels; }
  void synchronize() const override {}

 private:
  mutable std::byte* free_;
};

const Backend& fenced_backend() {
  static const FencedBackend backend;
  return backend;
}

// A model's parameters and gradients (0 at first), in a backend's memory.
class ParametersIn {
 public:
  ParametersIn(const Backend* backend, ParameterTable& table)
      : bound_(table, DType::f32), table_(table), arena_(size_t{1} << 28, backend) {
    for (int index = 0; index < table.size(); ++index) {
      const Tensor value = bound_.value(index);
      const Tensor here = arena_.take(value.dtype, value.rows, value.cols);
      gradients_.push_back(arena_.take(DType::f32, value.rows, value.cols));
      copy(value, here);
      zero(gradients_.back());
      table.set_value(index, here);
      table.set_gradient(index, gradients_.back());
    }
  }
  Arena& arena() { return arena_; }
  std::vector<HostTensor> gradients() const {
    std::vector<HostTensor> found;
    for (const Tensor& gradient : gradients_) {
      copy(gradient, found.emplace_back(gradient.dtype, gradient.rows, gradient.cols));
    }
    return found;
  }

 private:
  BoundParameters bound_;
  ParameterTable& table_;
  Arena arena_;
  std::vector<Tensor> gradients_;
};

struct Outcome {
  Loss loss;
  HostTensor logits;
  std::vector<HostTensor> gradients;
};

Outcome train_in(const Backend* backend, Model& model, const MicroBatch& batch) {
  ParametersIn parameters(backend, model.parameters());
  Pass pass{.arena = parameters.arena(), .batch = &batch};
  const Tensor logits = forward(model, pass);
  Outcome outcome{.logits = HostTensor(logits.dtype, logits.rows, logits.cols)};
  copy(logits, outcome.logits);
  const int64_t waits_before = waits;
  backward(model, pass);
  EXPECT_EQ(waits, waits_before) << "backward waits for the loss";
  outcome.loss = pass.loss.get();
  outcome.gradients = parameters.gradients();
  return outcome;
}

// Every element's bits are those of the CPU, and nothing but kernels touched any.
void expect_same_in_fenced_memory(Model& model, const MicroBatch& batch) {
  const Outcome expected = train_in(nullptr, model, batch);
  const int64_t calls_before = kernel_calls, waits_before = waits;
  const Outcome found = train_in(&fenced_backend(), model, batch);
  EXPECT_GT(kernel_calls, calls_before + std::ssize(model.units()));
  EXPECT_EQ(waits, waits_before + 1) << "the loss is waited for once";
  EXPECT_NE(expected.loss.sum, 0);
  EXPECT_EQ(found.loss.sum, expected.loss.sum);
  EXPECT_EQ(found.loss.correct, expected.loss.correct);
  EXPECT_TRUE(same_bits(found.logits, expected.logits));
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(found.gradients[i], expected.gradients[i]))
        << model.parameters().specs()[i].name;
  }
}

TEST(BackendTest, AnMlpTrainsInAnyMemory) {
  MlpModel model({.context = 4, .embedding = 6, .hidden = 16, .layers = 2, .vocabulary = 11});
  const TokenBatch tokens(5, 4, 11);
  MicroBatch batch = tokens.micro_batch;
  batch.targets = batch.targets.first(5);
  expect_same_in_fenced_memory(model, batch);
}

TEST(BackendTest, ADecoderTrainsInAnyMemory) {
  const TokenBatch tokens(3, 8, 13);
  Gpt gpt({.layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 13, .dropout = 0.1});
  expect_same_in_fenced_memory(gpt, tokens.micro_batch);
}

}  // namespace
}  // namespace tutti::training::testing
