// Rows of activations that go to the ranks that are to compute with them, and come back as what was
// made of them. Each row is for one of some bins (experts), which the ranks along some axes have in
// even shares. Of 2 ranks and 4 bins:
//
//   rank 0 sends   bins 0 1 2 3        rank 0 gets   bins 0 1 of rank 0, bins 0 1 of rank 1
//   rank 1 sends   bins 0 1 2 3        rank 1 gets   bins 2 3 of rank 0, bins 2 3 of rank 1
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/pass.h"
#include "training/parallel/mesh.h"

namespace tutti::training {

class RowExchange {
 public:
  // Rows under way. What is sent and what they come into stay as they are until wait() returns.
  class Travel {
   public:
    Travel() = default;
    Travel(Mesh* mesh, Work work, double bytes)
        : mesh_(mesh), work_(std::move(work)), bytes_(bytes) {}
    void wait();

   private:
    Mesh* mesh_ = nullptr;
    Work work_;
    double bytes_ = 0;
  };

  // Nobody's rows.
  RowExchange() = default;
  // Collective among the ranks along `axes`, and blocks. `counts`: this rank's rows for each bin,
  // in whose order they are sent. Without a mesh (a model that is measured alone) every rank is as
  // this one, and zeros come.
  RowExchange(Pass& pass, const MeshPlace& place, AxisSet axes, std::span<const int64_t> counts);

  // Those of the bins that a rank has; the rank that has a bin.
  static Share bins_of(int64_t bins, int rank, int ranks) { return even_share(bins, rank, ranks); }
  static int rank_of(int64_t bin, int64_t bins, int ranks);

  int ranks() const { return static_cast<int>(sent_.size()); }
  int64_t received() const;
  // The rows that came from a rank for the bin that is this rank's number `bin`.
  Share rows_from(int rank, int64_t bin) const {
    return from_[static_cast<size_t>(rank)][static_cast<size_t>(bin)];
  }

  // Collective. Each rank's rows to those who compute with them; what they have become, back.
  Travel forth(Pass& pass, ConstTensor sent, Tensor received) const;
  Travel back(Pass& pass, ConstTensor received, Tensor sent) const;

 private:
  Travel start(Pass& pass, ConstTensor from, const std::vector<int64_t>& from_counts, Tensor to,
               const std::vector<int64_t>& to_counts) const;

  AxisSet axes_;
  int own_ = 0;
  std::vector<int64_t> sent_, received_;  // rows, by rank
  std::vector<std::vector<Share>> from_;  // by rank and bin: of the rows that come
};

}  // namespace tutti::training
