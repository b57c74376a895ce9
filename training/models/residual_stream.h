// The residual stream: a tensor with one row of `width` values for each token, to which each layer
// of a decoder adds its output. Over tensor-parallel ranks, the stream is replicated or, with
// sequence parallelism, sharded by rows (Korthikanti et al.: Reducing activation recomputation in
// large transformer models, 2022):
//
//   replicated:  x ----------> [layer's part] --all-reduce-----> x'
//   rows:        x_r -gather-> [layer's part] --reduce-scatter-> x'_r     normalization and dropout
//                                                                         of own rows only
#pragma once

#include <cstddef>
#include <cstdint>

#include "training/core/parameters.h"
#include "training/core/pass.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/part_of.h"
#include "training/modules/norm.h"
#include "training/parallel/convert_layout.h"
#include "training/parallel/sum_over_ranks.h"

namespace tutti::training {

class ResidualStream {
 public:
  // Creates the stream of the rank at `place`. `sequence_parallel`: shard rows, if there are
  // several tensor-parallel ranks. `overlaps`: as in SumOverRanks.
  ResidualStream(const MeshPlace& place, int64_t width, bool sequence_parallel, bool overlaps);

  const ActivationLayout& layout() const { return layout_; }
  const MeshPlace& place() const { return place_; }
  bool shares_rows() const { return layout_.along(Axis::tensor) == Spread::rows; }
  // Return the number of rows of the micro-batch, and the part that this rank has.
  int64_t rows(const Pass& pass) const { return std::ssize(pass.batch->tokens); }
  PartOf own_rows(const Pass& pass) const;

  // Returns all rows of a tensor with the stream's layout; in the same memory if this rank has all
  // of them.
  ConstTensor whole(Pass& pass, ConstTensor own) const;
  // Gathers all columns of a tensor whose columns are split equally over the tensor-parallel ranks.
  ConstTensor all_columns(Pass& pass, ConstTensor own) const;
  // Returns the number of parts into which a micro-batch's samples are divided, so that sums of one
  // part overlap with computation on another.
  int64_t parts(const Pass& pass) const;

  // A sum over tensor-parallel ranks that is in flight.
  struct Sum {
    SumOverRanks over_ranks;
    Tensor part;      // this rank's term
    Tensor result;    // the sum for this rank's rows of the stream, in the pass's type
    size_t mark = 0;  // position to which finish() releases the arena
  };
  // Starts to sum over ranks. make(part, turns) writes this rank's term to `part`: all rows x
  // width, of `type`. If `type` is not the pass's type, or ranks share rows, the caller must take
  // nothing from the arena before finish().
  template <typename Make>
  Sum start_sum(Pass& pass, Tensor result, DType type, const Make& make) const;
  void finish(Pass& pass, Sum& sum) const;
  // Calls start_sum() and finish().
  template <typename Make>
  Tensor sum_of_parts(Pass& pass, DType type, const Make& make) const;
  // Starts to sum over ranks. make(turns) returns this rank's term, which the sum overwrites.
  template <typename Make>
  Sum start_sum_of_gradients(Pass& pass, const Make& make) const;
  Tensor finish_gradients(Pass& pass, Sum& sum) const;

  Tensor take(Pass& pass) const;

 private:
  SumOverRanks sum(Pass& pass) const {
    return {pass, place_, {rows(pass), width_}, layout_, overlaps_};
  }

  MeshPlace place_;
  int64_t width_;
  ActivationLayout layout_;
  bool overlaps_;
};

template <typename Make>
ResidualStream::Sum ResidualStream::start_sum(Pass& pass, Tensor result, DType type,
                                              const Make& make) const {
  Sum sum{this->sum(pass), result, result, pass.arena.mark()};
  if (shares_rows() || type != pass.dtype) sum.part = pass.arena.take(type, rows(pass), width_);
  make(sum.part, &sum.over_ranks);
  return sum;
}

template <typename Make>
Tensor ResidualStream::sum_of_parts(Pass& pass, DType type, const Make& make) const {
  const Tensor result = take(pass);
  Sum sum = start_sum(pass, result, type, make);
  finish(pass, sum);
  return result;
}

template <typename Make>
ResidualStream::Sum ResidualStream::start_sum_of_gradients(Pass& pass, const Make& make) const {
  Sum sum{this->sum(pass), {}, {}, pass.arena.mark()};
  sum.part = make(&sum.over_ranks);
  return sum;
}

// A normalization of the stream. If ranks share the rows, the gradients of the norm's parameters
// are partial sums. In deterministic mode the norm itself sums them over ranks, in an order that
// does not depend on the number of ranks.
class StreamNorm {
 public:
  using Saved = Norm::Saved;

  StreamNorm(ParameterTable& table, const std::string& name, const ResidualStream& stream,
             int64_t width, NormKind kind, double epsilon, int slices);

  Tensor forward(Pass& pass, ConstTensor input, Saved& saved) const {
    return norm_.forward(pass, input, saved);
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const;

 private:
  void backward_weight(Pass& pass, const Saved& saved) const;

  ResidualStream stream_;
  Norm norm_;
};

}  // namespace tutti::training
