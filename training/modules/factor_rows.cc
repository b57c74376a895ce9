#include "training/modules/factor_rows.h"

#include <algorithm>
#include <utility>

#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

void store(ConstTensor from, Tensor to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    const ConstTensor source = from.row_range(row, 1);
    const Tensor target = to.row_range(row, 1);
    source.dtype == target.dtype ? copy(source, target) : convert(source, target);
  }
}

}  // namespace

FactorRows::FactorRows(int64_t inputs, int64_t outputs, DType dtype, Allocate allocate)
    : inputs_(inputs), outputs_(outputs), dtype_(dtype), allocate_(std::move(allocate)) {}

void FactorRows::reserve(int64_t rows) {
  if (rows <= capacity_) return;
  const ConstTensor before = all();
  const std::shared_ptr<std::byte[]> kept = memory_;
  capacity_ = std::max(rows, 2 * capacity_);
  memory_ = allocate_(static_cast<size_t>(bytes()));
  if (before.rows > 0) copy(before, tensor(before.rows));
}

void FactorRows::add(ConstTensor input, ConstTensor output_gradient) {
  require_shapes(input.rows == output_gradient.rows && input.cols == inputs_ &&
                     output_gradient.cols == outputs_,
                 "FactorRows");
  reserve(rows_ + input.rows);
  const Tensor added = tensor(rows_ + input.rows).row_range(rows_, input.rows);
  store(input, added.col_range(0, inputs_));
  store(output_gradient, added.col_range(inputs_, outputs_));
  rows_ += input.rows;
}

void FactorRows::multiply(ConstTensor rows, Tensor gradient) {
  require_shapes(rows.cols == gradient.rows + gradient.cols, "FactorRows");
  if (rows.rows == 0) return zero(gradient);
  gemm(rows.col_range(gradient.cols, gradient.rows), Transpose::yes,
       rows.col_range(0, gradient.cols), Transpose::no, gradient);
}

}  // namespace tutti::training
