// A tensor whose rows are summed over the ranks along an axis while the next ones are computed (as
// Megatron-LM does beside the products for weights; Wang et al.: Overlap communication with
// dependent computation via decomposition, 2023, beside the product itself):
//
//   compute   | rows 0 | rows 1 | rows 2 | gradients of weights ...
//   sum                | rows 0 | rows 1 | rows 2 |
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
  // To this layout, from that of a part of the sum along the axis tensor. `whole`: as in
  // convert_layout(). Without `overlaps`, in deterministic mode and where one rank is alone it is a
  // conversion as any other.
  SumOverRanks(Pass& pass, const MeshPlace& place, const WholeShape& whole,
               const ActivationLayout& to, bool overlaps);

  std::span<const Share> parts() const override { return parts_; }
  void done(Tensor result, size_t part) override;
  // The sum, as convert_layout() returns it. Waits for what is not there yet.
  Tensor finish(Tensor result);

 private:
  bool to_rows() const { return to_.along(Axis::tensor) == Spread::rows; }
  // Of a rank's rows those of a turn: as long as there are turns, a part of each rank's rows.
  Share rows_of(int rank, int turn) const;
  Work start(Tensor result, int turn);

  Pass* pass_;
  MeshPlace place_;
  WholeShape whole_;
  ActivationLayout to_;
  int ranks_;
  int turns_ = 0;
  std::vector<Share> parts_;
  std::vector<Work> sums_;  // by turn
};

}  // namespace tutti::training
