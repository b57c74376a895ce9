#include "training/parallel/hooks/powersgd.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"
#include "training/parallel/hooks/error_feedback.h"
#include "training/parallel/hooks/orthonormalize.h"

namespace tutti::training {
namespace {

Buffer buffer(const Memory<float>& memory, int64_t count) {
  return {memory.get(), static_cast<uint64_t>(count), DType::f32};
}

Tensor row(const Memory<float>& memory, int64_t count) {
  return tensor_at(memory.get(), DType::f32, 1, count);
}

// Calls copy(place in the bucket, place in `packed`, bytes) for each uncompressed parameter.
template <typename Copy>
void for_each_other(const std::vector<Slot>& slots, Tensor gradients, std::byte* packed,
                    Copy&& copy) {
  for (const Slot& slot : slots) {
    const size_t bytes = static_cast<size_t>(slot.count) * size_of(gradients.dtype);
    copy(gradients.at(0, slot.offset), packed, bytes);
    packed += bytes;
  }
}

}  // namespace

PowerSgd::PowerSgd(const Layout& layout, const std::vector<ParameterSpec>& specs,
                   const PowerSgdOptions& options)
    : rank_(options.rank), seed_(options.seed), buckets_(layout.buckets.size()) {
  if (rank_ < 1) {
    throw Error(ErrorCode::invalid_argument, cat("PowerSGD cannot have a rank of ", rank_),
                {.remedy = "use at least 1, usually 4"});
  }
  int64_t largest = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    BucketState& at = buckets_[b];
    for (const int parameter : layout.buckets[b].parameters) {
      const auto index = static_cast<size_t>(parameter);
      add_matrix(at, specs[index], layout.slots[index]);
    }
    int64_t errors = 0;
    for (const Matrix& matrix : at.matrices) {
      errors += matrix.rows * matrix.cols;
      largest = std::max(largest, matrix.rows * matrix.cols);
    }
    at.errors.resize(static_cast<size_t>(errors));
  }
  scratch_.resize(static_cast<size_t>(largest));
}

void PowerSgd::add_matrix(BucketState& at, const ParameterSpec& spec, const Slot& slot) {
  const int64_t rows = std::max<int64_t>(1, spec.local_rows());
  const int64_t cols = slot.count / rows;
  if (rank_ * (rows + cols) >= slot.count) {
    at.others.push_back(slot);
    at.other_size += slot.count;
    return;
  }
  Matrix matrix{.spec = spec,
                .offset = slot.offset,
                .rows = rows,
                .cols = cols,
                .p_offset = at.p_size,
                .q_offset = at.q_size};
  if (!at.matrices.empty()) {
    const Matrix& last = at.matrices.back();
    matrix.error_offset = last.error_offset + last.rows * last.cols;
  }
  at.p_size += rank_ * rows;
  at.q_size += rank_ * cols;
  at.matrices.push_back(std::move(matrix));
}

Tensor PowerSgd::p_of(BucketState& at, const Matrix& matrix) const {
  return tensor_at(at.p.get() + matrix.p_offset, DType::f32, rank_, matrix.rows);
}

Tensor PowerSgd::q_of(const Memory<float>& q, const Matrix& matrix) const {
  return tensor_at(q.get() + matrix.q_offset, DType::f32, rank_, matrix.cols);
}

Tensor PowerSgd::error_of(BucketState& at, const Matrix& matrix) {
  return tensor_at(at.errors.data() + matrix.error_offset, DType::f32, matrix.rows, matrix.cols);
}

Tensor PowerSgd::matrix_in(Tensor bucket, const Matrix& matrix) {
  return tensor_at(bucket.at(0, matrix.offset), bucket.dtype, matrix.rows, matrix.cols);
}

Tensor PowerSgd::scratch_for(const Matrix& matrix) {
  return tensor_at(scratch_.data(), DType::f32, matrix.rows, matrix.cols);
}

void PowerSgd::prepare(BucketState& at, Communicator& communicator, DType dtype) {
  check_error_feedback("PowerSGD", dtype);
  at.communicator = communicator;
  at.p = communicator.allocate<float>(static_cast<size_t>(at.p_size));
  at.q = communicator.allocate<float>(static_cast<size_t>(at.q_size));
  at.own_q = communicator.allocate<float>(static_cast<size_t>(at.q_size));
  at.other_bytes = at.other_size * static_cast<int64_t>(size_of(dtype));
  at.other_values = communicator.allocate<std::byte>(static_cast<size_t>(at.other_bytes));
  for (Matrix& matrix : at.matrices) {
    for (int row = 0; row < rank_; ++row) draw_q(at, matrix, row);
  }
}

void PowerSgd::draw_q(BucketState& at, Matrix& matrix, int row) const {
  const Tensor values = q_of(at.q, matrix).row_range(row, 1);
  draw({Initial::Kind::normal, 1}, seed_, matrix.spec.stream(),
       static_cast<int64_t>(matrix.draws) * matrix.cols, values.values<float>());
  ++matrix.draws;
}

std::vector<HookState> PowerSgd::states(Communicator& communicator, DType gradients) {
  std::vector<HookState> states;
  for (BucketState& at : buckets_) {
    if (!at.communicator.valid()) prepare(at, communicator, gradients);
    for (Matrix& matrix : at.matrices) {
      const auto add = [&](const char* what, float* values, int64_t count, RowKind kind) {
        states.push_back({cat("powersgd.", what, ".", matrix.spec.name),
                          tensor_at(values, DType::f32, 1, count), kind});
      };
      add("error", error_of(at, matrix).values<float>().data(), matrix.rows * matrix.cols,
          RowKind::summed);
      add("q", at.q.get() + matrix.q_offset, rank_ * matrix.cols, RowKind::same);
      add("draws", &matrix.draws, 1, RowKind::same);
    }
  }
  return states;
}

void PowerSgd::start(Communicator& communicator, int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  if (!at.communicator.valid()) prepare(at, communicator, gradients.dtype);
  for (const Matrix& matrix : at.matrices) {
    const Tensor error = error_of(at, matrix);
    const Tensor gradient = scratch_for(matrix);
    convert(matrix_in(gradients, matrix), gradient);
    add(error, gradient, error);
    gemm(q_of(at.q, matrix), Transpose::no, error, Transpose::yes, p_of(at, matrix));
  }
  if (!at.matrices.empty()) {
    const Buffer p = buffer(at.p, at.p_size);
    at.p_sum = communicator.all_reduce_async(as_const(p), p);
  }
  if (!at.others.empty()) {
    for_each_other(
        at.others, gradients, at.other_values.get(),
        [](std::byte* own, std::byte* packed, size_t n) { std::memcpy(packed, own, n); });
    const Buffer packed{at.other_values.get(), static_cast<uint64_t>(at.other_size),
                        gradients.dtype};
    at.other_sum = communicator.all_reduce_async(as_const(packed), packed);
  }
}

bool PowerSgd::test(int bucket) {
  BucketState& at = state(bucket);
  return at.matrices.empty() && at.other_sum.test();
}

void PowerSgd::finish(int bucket, Tensor gradients) {
  BucketState& at = state(bucket);
  const bool finite = at.matrices.empty() || sum_q(at);
  for (Matrix& matrix : at.matrices) {
    const Tensor gradient = matrix_in(gradients, matrix);
    finite ? decompress(at, matrix, gradient) : restart(at, matrix, gradient);
  }
  at.other_sum.wait();
  for_each_other(at.others, gradients, at.other_values.get(),
                 [](std::byte* own, std::byte* packed, size_t n) { std::memcpy(own, packed, n); });
}

bool PowerSgd::sum_q(BucketState& at) {
  at.p_sum.wait();
  // All ranks have the same sums, so all of them return here.
  if (!all_finite(row(at.p, at.p_size)).get()) return false;
  for (Matrix& matrix : at.matrices) {
    const Tensor p = p_of(at, matrix);
    matrix.dependent = orthonormalize(p);
    gemm(p, Transpose::no, error_of(at, matrix), Transpose::no, q_of(at.own_q, matrix));
  }
  at.communicator.all_reduce(as_const(buffer(at.own_q, at.q_size)), buffer(at.q, at.q_size));
  return all_finite(row(at.q, at.q_size)).get();
}

void PowerSgd::decompress(BucketState& at, Matrix& matrix, Tensor gradient) {
  const Tensor p = p_of(at, matrix);
  const Tensor sum = scratch_for(matrix);
  gemm(p, Transpose::yes, q_of(at.q, matrix), Transpose::no, sum);
  convert(sum, gradient);

  const Tensor own_q = q_of(at.own_q, matrix);
  scale(own_q, own_q, -1);
  gemm(p, Transpose::yes, own_q, Transpose::no, error_of(at, matrix), GemmMode::accumulate);

  // The rows of Q for dependent columns of P are zero and would remain zero, so they are redrawn.
  for (const int row : matrix.dependent) draw_q(at, matrix, row);
}

void PowerSgd::restart(BucketState& at, Matrix& matrix, Tensor gradient) {
  const Tensor sum = scratch_for(matrix);
  std::ranges::fill(sum.values<float>(), std::numeric_limits<float>::quiet_NaN());
  convert(sum, gradient);
  std::ranges::fill(error_of(at, matrix).values<float>(), 0.0f);
  for (int row = 0; row < rank_; ++row) draw_q(at, matrix, row);
}

int64_t PowerSgd::bytes() const {
  int64_t floats = std::ssize(scratch_);
  int64_t bytes = 0;
  for (const BucketState& at : buckets_) {
    floats += std::ssize(at.errors) + at.p_size + 2 * at.q_size;
    bytes += at.other_bytes;
  }
  return bytes + floats * static_cast<int64_t>(sizeof(float));
}

int64_t PowerSgd::payload_bytes(int bucket, Tensor gradients) const {
  const BucketState& at = buckets_.at(static_cast<size_t>(bucket));
  return (at.p_size + at.q_size) * static_cast<int64_t>(sizeof(float)) +
         at.other_size * static_cast<int64_t>(size_of(gradients.dtype));
}

}  // namespace tutti::training
