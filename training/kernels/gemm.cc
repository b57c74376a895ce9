#include "training/kernels/gemm.h"

#include <array>
#include <compare>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "base/reduce.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/loops.h"

// From omp.h, which not every compiler brings along; oneDNN's own OpenMP runtime defines them.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
}

namespace tutti::training {
namespace {

using DataType = dnnl::memory::data_type;
using Descriptor = dnnl::memory::desc;

// A product as it is: what a primitive is made for.
struct Key {
  int64_t m = 0, n = 0, k = 0;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  DType in = DType::f32, out = DType::f32;
  auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): false alarm
};

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// While it lives, oneDNN computes on the calling thread alone: ranks are the parallelism here, and
// bits must not depend on OMP_NUM_THREADS.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_ = omp_get_max_threads();
};

DataType data_type(DType type) { return type == DType::bf16 ? DataType::bf16 : DataType::f32; }

// rows x cols as the product sees it; stored as its transpose or not.
Descriptor matrix(int64_t rows, int64_t cols, int64_t stride, bool transposed, DType type) {
  using Dims = dnnl::memory::dims;
  const Dims strides = transposed ? Dims{1, stride} : Dims{stride, 1};
  return {Dims{rows, cols}, data_type(type), strides};
}

// A primitive with its arguments; only their addresses change from call to call.
class Product {
 public:
  explicit Product(const Key& key) : stream_(cpu_engine()) {
    const Descriptor a = matrix(key.m, key.k, key.stride_a, key.transpose_a, key.in);
    const Descriptor b = matrix(key.k, key.n, key.stride_b, key.transpose_b, key.in);
    const Descriptor c = matrix(key.m, key.n, key.stride_c, false, key.out);
    const Descriptor bias = matrix(1, key.n, key.n, false, key.in);
    dnnl::primitive_attr attributes;
    if (key.accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0f);
      attributes.set_post_ops(post);
    }
    const auto descriptor =
        key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    primitive_ = dnnl::matmul({descriptor, attributes, cpu_engine()});
    add(DNNL_ARG_SRC, a);
    add(DNNL_ARG_WEIGHTS, b);
    add(DNNL_ARG_DST, c);
    if (key.bias) add(DNNL_ARG_BIAS, bias);
  }

  void run(const void* a, const void* b, void* c, const void* bias) {
    set(DNNL_ARG_SRC, a);
    set(DNNL_ARG_WEIGHTS, b);
    set(DNNL_ARG_DST, c);
    if (bias != nullptr) set(DNNL_ARG_BIAS, bias);
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void add(int argument, const Descriptor& descriptor) {
    arguments_.emplace(argument, dnnl::memory(descriptor, cpu_engine(), nullptr));
  }
  void set(int argument, const void* data) {
    arguments_.at(argument).set_data_handle(const_cast<void*>(data));
  }

  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void product(const Key& key, const void* a, const void* b, void* c, const void* bias) {
  thread_local std::map<Key, Product> products;
  const OneThread one_thread;
  try {
    auto found = products.find(key);
    if (found == products.end()) found = products.try_emplace(key, key).first;
    found->second.run(a, b, c, bias);
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::internal,
                cat("oneDNN failed on a product of ", key.m, " x ", key.k, " and ", key.k, " x ",
                    key.n, " in ", name(key.in)),
                {.cause = error.what()});
  }
}

// BLAS counts columns first: it computes the transpose of everything.
void product_f64(const Key& key, ConstTensor a, ConstTensor b, Tensor c, ConstTensor bias) {
  double beta = key.accumulate ? 1 : 0;
  if (key.bias) {
    beta = 1;
    for (int64_t row = 0; row < c.rows; ++row) {
      const auto source = bias.values<double>();
      std::copy(source.begin(), source.end(), reinterpret_cast<double*>(c.at(row, 0)));
    }
  }
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  const int m = narrow(key.m), n = narrow(key.n), k = narrow(key.k);
  const int lda = narrow(key.stride_a), ldb = narrow(key.stride_b), ldc = narrow(key.stride_c);
  const double alpha = 1;
  dgemm_(key.transpose_b ? "T" : "N", key.transpose_a ? "T" : "N", &n, &m, &k, &alpha,
         reinterpret_cast<const double*>(b.data), &ldb, reinterpret_cast<const double*>(a.data),
         &lda, &beta, reinterpret_cast<double*>(c.data), &ldc);
}

// An operand as contiguous f32, in memory that is the calling thread's until its next use.
ConstTensor as_f32(ConstTensor source, std::vector<float>& memory) {
  if (source.dtype == DType::f32) return source;
  memory.resize(static_cast<size_t>(source.size()));
  for (int64_t row = 0; row < source.rows; ++row) {
    kernels::loops(source.dtype)
        .to_values(source.at(row, 0), &memory[static_cast<size_t>(row * source.cols)], source.cols);
  }
  return tensor_at(static_cast<const void*>(memory.data()), DType::f32, source.rows, source.cols);
}

void gemm_by_f32(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b,
                 Tensor c, GemmMode mode, ConstTensor bias) {
  thread_local std::array<std::vector<float>, 4> memory;
  const ConstTensor wide_bias = bias.empty() ? bias : as_f32(bias, memory[2]);
  Tensor wide = c;
  if (c.dtype != DType::f32) {
    memory[3].resize(static_cast<size_t>(c.size()));
    wide = tensor_at(memory[3].data(), DType::f32, c.rows, c.cols);
  }
  const bool widened = c.dtype != DType::f32;
  gemm(as_f32(a, memory[0]), transpose_a, as_f32(b, memory[1]), transpose_b, wide,
       widened ? GemmMode::overwrite : mode, wide_bias);
  if (!widened) return;
  const kernels::Loops& loops = kernels::loops(c.dtype);
  const auto narrow = mode == GemmMode::accumulate ? loops.add_values : loops.from_values;
  for (int64_t row = 0; row < c.rows; ++row) narrow(wide.at(row, 0), c.at(row, 0), c.cols);
}

// A product without terms (oneDNN leaves c as it is, BLAS refuses the strides).
void set_rows(Tensor c, ConstTensor bias) {
  for (int64_t row = 0; row < c.rows; ++row) {
    if (bias.empty()) {
      std::memset(c.at(row, 0), 0, c.row_range(row, 1).bytes());
    } else {
      convert(bias, c.row_range(row, 1));
    }
  }
}

bool by_f32(DType type) {
  return type == DType::f16 ||
         (type == DType::bf16 && !is_available(InstructionSet::avx512));  // as oneDNN 2 has it
}

}  // namespace

void gemm(ConstTensor a, Transpose transpose_a, ConstTensor b, Transpose transpose_b, Tensor c,
          GemmMode mode, ConstTensor bias) {
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const Key key{.m = c.rows,
                .n = c.cols,
                .k = ta ? a.rows : a.cols,
                .stride_a = a.stride,
                .stride_b = b.stride,
                .stride_c = c.stride,
                .transpose_a = ta,
                .transpose_b = tb,
                .bias = !bias.empty(),
                .accumulate = mode == GemmMode::accumulate,
                .in = a.dtype,
                .out = c.dtype};
  require_shapes((ta ? a.cols : a.rows) == key.m && (tb ? b.rows : b.cols) == key.n &&
                     (tb ? b.cols : b.rows) == key.k && a.dtype == b.dtype &&
                     (c.dtype == a.dtype || (c.dtype == DType::f32 && size_of(a.dtype) == 2)) &&
                     (bias.empty() || (bias.cols == key.n && bias.dtype == a.dtype)) &&
                     !(key.bias && key.accumulate),
                 "gemm");
  if (key.m == 0 || key.n == 0 || (key.k == 0 && key.accumulate)) return;
  if (key.k == 0) return set_rows(c, bias);
  if (a.dtype == DType::f64) return product_f64(key, a, b, c, bias);
  if (by_f32(a.dtype)) return gemm_by_f32(a, transpose_a, b, transpose_b, c, mode, bias);
  product(key, a.data, b.data, c.data, bias.data);
}

}  // namespace tutti::training
