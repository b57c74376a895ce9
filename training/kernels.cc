#include "training/kernels.h"

#include <compare>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"

// From omp.h, which not every compiler brings along; oneDNN's own OpenMP runtime defines them.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace tutti::training {
namespace {

using Dims = dnnl::memory::dims;
using Descriptor = dnnl::memory::desc;
using DataType = dnnl::memory::data_type;

enum class Kind { gemm, gelu, gelu_backward, softmax };

// What a primitive is made for. Elementwise kernels leave k and the flags alone.
struct Key {
  Kind kind;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): false alarm
};

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// While it lives, oneDNN computes on the calling thread alone. Ranks are the parallelism here: a
// micro-batch is so small that a second thread costs more than it brings, above all where ranks
// share cores, and its bits must not depend on OMP_NUM_THREADS.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_ = omp_get_max_threads();
};

// A primitive with its arguments; only the arguments' addresses change from call to call.
class Kernel {
 public:
  Kernel(dnnl::primitive primitive, const std::vector<std::pair<int, Descriptor>>& arguments)
      : primitive_(std::move(primitive)), stream_(cpu_engine()) {
    for (const auto& [id, descriptor] : arguments) {
      arguments_.emplace(id, dnnl::memory(descriptor, cpu_engine(), nullptr));
    }
  }

  void set(int id, const void* data) { arguments_.at(id).set_data_handle(const_cast<void*>(data)); }
  void execute() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

Descriptor row_major(int64_t rows, int64_t cols) {
  return {Dims{rows, cols}, DataType::f32, Dims{cols, 1}};
}

// A rows x cols operand that is stored as its transpose.
Descriptor column_major(int64_t rows, int64_t cols) {
  return {Dims{rows, cols}, DataType::f32, Dims{1, rows}};
}

Kernel make_gemm(const Key& key) {
  const Descriptor a = key.transpose_a ? column_major(key.m, key.k) : row_major(key.m, key.k);
  const Descriptor b = key.transpose_b ? column_major(key.k, key.n) : row_major(key.k, key.n);
  const Descriptor c = row_major(key.m, key.n);
  const Descriptor bias = row_major(1, key.n);
  dnnl::primitive_attr attributes;
  if (key.accumulate) {
    dnnl::post_ops post;
    post.append_sum(1.0f);
    attributes.set_post_ops(post);
  }
  const auto descriptor =
      key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  std::vector<std::pair<int, Descriptor>> arguments = {
      {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
  if (key.bias) arguments.emplace_back(DNNL_ARG_BIAS, bias);
  return {dnnl::matmul({descriptor, attributes, cpu_engine()}), arguments};
}

constexpr auto kGelu = dnnl::algorithm::eltwise_gelu_tanh;

Kernel make_gelu(const Key& key) {
  const Descriptor shape = row_major(key.m, key.n);
  const dnnl::eltwise_forward::desc descriptor(dnnl::prop_kind::forward_training, kGelu, shape,
                                               0.0f, 0.0f);
  return {dnnl::eltwise_forward({descriptor, cpu_engine()}),
          {{DNNL_ARG_SRC, shape}, {DNNL_ARG_DST, shape}}};
}

Kernel make_gelu_backward(const Key& key) {
  const Descriptor shape = row_major(key.m, key.n);
  const dnnl::eltwise_forward::desc forward(dnnl::prop_kind::forward_training, kGelu, shape, 0.0f,
                                            0.0f);
  const dnnl::eltwise_backward::desc backward(kGelu, shape, shape, 0.0f, 0.0f);
  return {dnnl::eltwise_backward({backward, cpu_engine(), {forward, cpu_engine()}}),
          {{DNNL_ARG_SRC, shape}, {DNNL_ARG_DIFF_DST, shape}, {DNNL_ARG_DIFF_SRC, shape}}};
}

Kernel make_softmax(const Key& key) {
  const Descriptor shape = row_major(key.m, key.n);
  const dnnl::softmax_forward::desc descriptor(dnnl::prop_kind::forward_inference, shape, 1);
  return {dnnl::softmax_forward({descriptor, cpu_engine()}),
          {{DNNL_ARG_SRC, shape}, {DNNL_ARG_DST, shape}}};
}

Kernel make_kernel(const Key& key) {
  switch (key.kind) {
    case Kind::gemm:
      return make_gemm(key);
    case Kind::gelu:
      return make_gelu(key);
    case Kind::gelu_backward:
      return make_gelu_backward(key);
    case Kind::softmax:
      return make_softmax(key);
  }
  throw Error(ErrorCode::internal, "unknown kernel");
}

// Runs the kernel for `key` on (argument, address) pairs.
void run(const Key& key, const std::vector<std::pair<int, const void*>>& arguments) {
  thread_local std::map<Key, Kernel> kernels;
  if (key.m == 0 || key.n == 0) return;
  const OneThread one_thread;
  try {
    auto found = kernels.find(key);
    if (found == kernels.end()) found = kernels.emplace(key, make_kernel(key)).first;
    for (const auto& [id, data] : arguments) found->second.set(id, data);
    found->second.execute();
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::internal,
                cat("oneDNN failed on a ", key.m, " x ", key.n, " matrix (k ", key.k, ")"),
                {.cause = error.what()});
  }
}

}  // namespace

void gemm(ConstMatrix a, Transpose transpose_a, ConstMatrix b, Transpose transpose_b, Matrix c,
          GemmMode mode, std::span<const float> bias) {
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const int64_t k = ta ? a.rows : a.cols;
  if ((ta ? a.cols : a.rows) != c.rows || (tb ? b.rows : b.cols) != c.cols ||
      (tb ? b.cols : b.rows) != k || (!bias.empty() && std::ssize(bias) != c.cols) ||
      (!bias.empty() && mode == GemmMode::accumulate)) {
    throw Error(ErrorCode::invalid_argument, "gemm: the shapes do not fit together");
  }
  std::vector<std::pair<int, const void*>> arguments = {
      {DNNL_ARG_SRC, a.data}, {DNNL_ARG_WEIGHTS, b.data}, {DNNL_ARG_DST, c.data}};
  if (!bias.empty()) arguments.emplace_back(DNNL_ARG_BIAS, bias.data());
  run({.kind = Kind::gemm,
       .m = c.rows,
       .n = c.cols,
       .k = k,
       .transpose_a = ta,
       .transpose_b = tb,
       .bias = !bias.empty(),
       .accumulate = mode == GemmMode::accumulate},
      arguments);
}

void gelu(ConstMatrix input, Matrix output) {
  run({.kind = Kind::gelu, .m = input.rows, .n = input.cols},
      {{DNNL_ARG_SRC, input.data}, {DNNL_ARG_DST, output.data}});
}

void gelu_backward(ConstMatrix input, ConstMatrix output_gradient, Matrix input_gradient) {
  run({.kind = Kind::gelu_backward, .m = input.rows, .n = input.cols},
      {{DNNL_ARG_SRC, input.data},
       {DNNL_ARG_DIFF_DST, output_gradient.data},
       {DNNL_ARG_DIFF_SRC, input_gradient.data}});
}

void softmax(ConstMatrix logits, Matrix probabilities) {
  run({.kind = Kind::softmax, .m = logits.rows, .n = logits.cols},
      {{DNNL_ARG_SRC, logits.data}, {DNNL_ARG_DST, probabilities.data}});
}

}  // namespace tutti::training
