// The tensor that a decoder's units hand on and add to: rows of tokens x width. Over tensor ranks
// it is the same on each, or, with sequence parallelism, each has some of the rows (Korthikanti et
// al.: Reducing activation recomputation in large transformer models, 2022):
//
//   replicated:  x ----------> [layer's part] --all-reduce-----> x'
//   rows:        x_r -gather-> [layer's part] --reduce-scatter-> x'_r     normalization and dropout
//                                                                         of own rows alone
#pragma once

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
  // Of the model's rank; what is a part of a sum over tensor ranks is one only if there are
  // several. `overlaps`: as of SumOverRanks.
  ResidualStream(const MeshPlace& place, int64_t width, bool sequence_parallel, bool overlaps);

  const ActivationLayout& layout() const { return layout_; }
  const MeshPlace& place() const { return place_; }
  bool shares_rows() const { return layout_.along(Axis::tensor) == Spread::rows; }
  // Rows of the micro-batch, and which of them this rank has.
  int64_t rows(const Pass& pass) const { return std::ssize(pass.batch->tokens); }
  PartOf own_rows(const Pass& pass) const;

  // All rows of what lies as the stream does, in its memory where that has them.
  ConstTensor whole(Pass& pass, ConstTensor own) const;
  // All columns of what tensor ranks have equal shares of.
  ConstTensor all_columns(Pass& pass, ConstTensor own) const;
  // Rows of the stream: the sum over tensor ranks of what make(part, turns) writes, all rows x
  // width of a type.
  template <typename Make>
  Tensor sum_of_parts(Pass& pass, DType type, const Make& make) const;
  // The same of what make(turns) returns; it is lost.
  template <typename Make>
  Tensor sum_of_gradients(Pass& pass, const Make& make) const;

 private:
  SumOverRanks sum(Pass& pass) const {
    return {pass, place_, {rows(pass), width_}, layout_, overlaps_};
  }
  Tensor take(Pass& pass) const;

  MeshPlace place_;
  int64_t width_;
  ActivationLayout layout_;
  bool overlaps_;
};

template <typename Make>
Tensor ResidualStream::sum_of_parts(Pass& pass, DType type, const Make& make) const {
  SumOverRanks sum = this->sum(pass);
  const Tensor result = take(pass);
  if (!shares_rows() && type == pass.dtype) {
    make(result, &sum);
    return sum.finish(result);
  }
  const ArenaScope scope(pass.arena);
  const Tensor part = pass.arena.take(type, rows(pass), width_);
  make(part, &sum);
  convert(sum.finish(part), result);
  return result;
}

template <typename Make>
Tensor ResidualStream::sum_of_gradients(Pass& pass, const Make& make) const {
  SumOverRanks sum = this->sum(pass);
  const Tensor found = sum.finish(make(&sum));
  if (found.dtype == pass.dtype) return found;
  const Tensor result = take(pass);
  convert(found, result);
  return result;
}

// A normalization of the stream. Where ranks share the rows its parameters' gradients are partial
// sums; in deterministic mode they are summed here, in an order that does not tell how many ranks
// there are.
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
