// Sums the rows of a tensor over the ranks along an axis while the next rows are computed:
//
//   compute   | rows 0 | rows 1 | rows 2 | gradients of weights ...
//   sum                | rows 0 | rows 1 | rows 2 |
//
// Megatron-LM overlaps such sums with the products for weight gradients. Wang et al. (Overlap
// communication with dependent computation via decomposition, 2023) overlap them with the product
// whose rows are summed.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "training/modules/rows_in_turn.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {

class SumOverRanks : public RowsInTurn {
 public:
  // Prepares the conversion of a partial tensor along the tensor axis to the layout `to`. `whole`:
  // as in convert_layout(). The conversion does not overlap if `overlaps` is false, in
  // deterministic mode, on a single rank, or without a mesh.
  SumOverRanks(Pass& pass, const MeshPlace& place, const WholeShape& whole,
               const ActivationLayout& to, bool overlaps);

  std::span<const Share> parts() const override { return parts_; }
  void done(Tensor result, size_t part) override;
  // Returns the sum, as convert_layout() does. Blocks until no part is in flight.
  Tensor finish(Tensor result);

 private:
  bool to_rows() const { return to_.along(Axis::tensor) == Spread::rows; }
  // Returns the rows of a rank that belong to turn `turn`: each turn has a part of each rank's
  // rows.
  Share rows_of(int rank, int turn) const;
  Work start(Tensor result, int turn);

  Pass* pass_;
  MeshPlace place_;
  WholeShape whole_;
  ActivationLayout to_;
  int ranks_;
  int turns_ = 0;
  std::vector<Share> parts_;
  std::vector<Work> sums_;  // by turn: the sum in flight
};

}  // namespace tutti::training
