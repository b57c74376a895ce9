// Rows of activations that go to the ranks that are to compute with them, and come back as what was
// made of them. Each row is for one of some bins (experts), of which each rank has some. Of 2 ranks
// and 4 bins:
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

// The ranks among which rows travel.
struct RowPeers {
  // Outlives the exchange. Null: a model is measured alone, and all ranks are as this one.
  Communicator* ranks = nullptr;
  int own = 0;
  std::vector<int64_t> bins = {};  // by rank: how many it has, which lie rank after rank
};

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
  // Collective among the peers, and blocks. `counts`: this rank's rows for each bin, in whose order
  // they are sent.
  RowExchange(const RowPeers& peers, std::span<const int64_t> counts);

  int ranks() const { return static_cast<int>(sent_.size()); }
  int64_t sent() const;
  int64_t received() const;
  // The rows that came from a rank for the bin that is this rank's number `bin`.
  Share rows_from(int rank, int64_t bin) const {
    return from_[static_cast<size_t>(rank)][static_cast<size_t>(bin)];
  }

  // Collective. Each rank's rows to those who compute with them; what they have become, back.
  Travel forth(Pass& pass, ConstTensor sent, Tensor received) const;
  Travel back(Pass& pass, ConstTensor received, Tensor sent) const;

 private:
  Work exchange(ConstBuffer from, const Blocks& from_blocks, Buffer to,
                const Blocks& to_blocks) const;
  Travel start(Pass& pass, ConstTensor from, const std::vector<int64_t>& from_counts, Tensor to,
               const std::vector<int64_t>& to_counts) const;

  Communicator* ranks_ = nullptr;  // null: alone
  int own_ = 0;
  std::vector<int64_t> sent_, received_;  // rows, by rank
  std::vector<std::vector<Share>> from_;  // by rank and bin: of the rows that come
};

}  // namespace tutti::training
