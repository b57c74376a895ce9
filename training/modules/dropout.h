// Dropout (Srivastava et al. 2014). Its random numbers depend on the sample's number and the
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

  // Drops elements of `values` in place: of the given rows of a tensor that has the micro-batch's
  // samples one after the other.
  void forward(const Pass& pass, Tensor values, PartOf rows = {}) const {
    apply(pass, values, rows);
  }
  void backward(const Pass& pass, Tensor gradient, PartOf rows = {}) const {
    apply(pass, gradient, rows);
  }
  bool active(const Pass& pass) const { return pass.training && p_ > 0; }

 private:
  void apply(const Pass& pass, Tensor values, PartOf rows) const {
    if (!active(pass) || values.empty()) return;
    const MicroBatch& batch = *pass.batch;
    if (batch.positions == 0) {
      const int64_t of_a_sample = rows.all_of(values.rows) * values.cols / batch.samples;
      return draw(pass, values, batch.first_sample, of_a_sample, rows.first * values.cols);
    }
    for_each_run(batch, {rows.first, values.rows}, [&](const TokenRun& run) {
      draw(pass, values.row_range(run.row - rows.first, run.count),
           batch.first_sample + static_cast<uint64_t>(run.sample), batch.positions * values.cols,
           run.position * values.cols);
    });
  }

  // Drops elements from index `first` on of sample `sample`, which has `of_a_sample` elements.
  void draw(const Pass& pass, Tensor values, uint64_t sample, int64_t of_a_sample,
            int64_t first) const {
    const uint64_t index =
        sample * static_cast<uint64_t>(of_a_sample) + static_cast<uint64_t>(first);
    dropout(values, values, p_, {pass.seed, stream_, index});
  }

  double p_;
  uint64_t stream_;
};

}  // namespace tutti::training
