// Dropout (Srivastava et al. 2014). Its random numbers depend on the sample's index and the
// element's index in the sample, not on the rank, the micro-batch or earlier draws, so every layout
// drops the same elements. No mask is kept: backward draws the same numbers again.
#pragma once

#include <cstdint>

#include "training/core/pass.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/part_of.h"

namespace tutti::training {

class Dropout {
 public:
  // Creates a dropout with probability `p`; `stream` distinguishes the dropouts of a model.
  Dropout(double p, uint64_t stream) : p_(p), stream_(stream) {}

  // Drops elements of `values` in place. `values` has the given rows of a tensor in which the
  // micro-batch's samples follow one another.
  void forward(const Pass& pass, Tensor values, PartOf rows = {}) const {
    apply(pass, values, rows);
  }
  // Computes values = residual + dropout(values) in one pass over memory.
  void forward_add(const Pass& pass, ConstTensor residual, Tensor values, PartOf rows = {}) const {
    if (!active(pass)) return add(residual, values, values);
    for_each_part(pass, values, rows, [&](int64_t first, int64_t count, const DropoutAt& at) {
      const Tensor part = values.row_range(first, count);
      dropout_add(part, residual.row_range(first, count), part, p_, at);
    });
  }
  void backward(const Pass& pass, Tensor gradient, PartOf rows = {}) const {
    apply(pass, gradient, rows);
  }
  bool active(const Pass& pass) const { return pass.training && p_ > 0; }

 private:
  void apply(const Pass& pass, Tensor values, PartOf rows) const {
    if (!active(pass)) return;
    for_each_part(pass, values, rows, [&](int64_t first, int64_t count, const DropoutAt& at) {
      const Tensor part = values.row_range(first, count);
      dropout(part, part, p_, at);
    });
  }

  // Calls drop(first row of `values`, number of rows, at) for parts with consecutive counters.
  template <typename Drop>
  void for_each_part(const Pass& pass, ConstTensor values, PartOf rows, const Drop& drop) const {
    if (values.empty()) return;
    const MicroBatch& batch = *pass.batch;
    // Counter of the element with index `first` of a sample that has `of_a_sample` elements.
    const auto at = [&](uint64_t sample, int64_t of_a_sample, int64_t first) -> DropoutAt {
      return {pass.seed, stream_,
              sample * static_cast<uint64_t>(of_a_sample) + static_cast<uint64_t>(first)};
    };
    if (batch.positions == 0) {
      const int64_t of_a_sample = rows.all_of(values.rows) * values.cols / batch.samples;
      return drop(int64_t{0}, values.rows,
                  at(batch.first_sample, of_a_sample, rows.first * values.cols));
    }
    for_each_run(batch, {rows.first, values.rows}, [&](const TokenRun& run) {
      drop(run.row - rows.first, run.count,
           at(batch.first_sample + static_cast<uint64_t>(run.sample), batch.positions * values.cols,
              run.position * values.cols));
    });
  }

  double p_;
  uint64_t stream_;
};

}  // namespace tutti::training
