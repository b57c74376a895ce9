// Dispatches rows of activations to the ranks that compute with them, and returns the results. A
// row is for one of several bins (experts), and each rank owns some bins. With 2 ranks and 4 bins:
//
//   rank 0 sends   bins 0 1 2 3        rank 0 receives   bins 0 1 of rank 0, bins 0 1 of rank 1
//   rank 1 sends   bins 0 1 2 3        rank 1 receives   bins 2 3 of rank 0, bins 2 3 of rank 1
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/pass.h"
#include "training/parallel/mesh.h"

namespace tutti::training {

// The ranks that exchange rows.
struct RowPeers {
  // The communicator, which must outlive the exchange. Null if a model is profiled on one rank; the
  // other ranks are then assumed to have the same counts, and rows of zeros.
  Communicator* ranks = nullptr;
  int own = 0;
  std::vector<int64_t> bins = {};  // by rank: number of its bins, which are consecutive
};

class RowExchange {
 public:
  // Rows in flight. Their source and destination must not change until wait() has returned.
  class Transfer {
   public:
    Transfer() = default;
    Transfer(Mesh* mesh, Work work, double bytes)
        : mesh_(mesh), work_(std::move(work)), bytes_(bytes) {}
    void wait();

   private:
    Mesh* mesh_ = nullptr;
    Work work_;
    double bytes_ = 0;
  };

  // Creates an exchange of no rows.
  RowExchange() = default;
  // Exchanges the counts of rows. Collective among the peers, and blocking. `counts`: number of
  // this rank's rows for each bin; rows are sent in the order of bins.
  RowExchange(const RowPeers& peers, std::span<const int64_t> counts);

  int ranks() const { return static_cast<int>(sent_.size()); }
  int64_t received() const;
  // Returns the range of the rows received from `rank` for a bin of this rank. `bin`: index among
  // this rank's bins.
  Share rows_from(int rank, int64_t bin) const {
    return from_[static_cast<size_t>(rank)][static_cast<size_t>(bin)];
  }

  // Collective. dispatch() starts to send each row to the owner of its bin; return_rows() starts to
  // send one row back to the sender of each received row.
  Transfer dispatch(Pass& pass, ConstTensor sent, Tensor received) const;
  Transfer return_rows(Pass& pass, ConstTensor received, Tensor sent) const;

 private:
  Work exchange(ConstBuffer from, const Blocks& from_blocks, Buffer to,
                const Blocks& to_blocks) const;
  Transfer start(Pass& pass, ConstTensor from, const std::vector<int64_t>& from_counts, Tensor to,
                 const std::vector<int64_t>& to_counts) const;

  Communicator* ranks_ = nullptr;  // null: profiled on one rank
  int own_ = 0;
  std::vector<int64_t> sent_, received_;  // number of rows, by rank
  std::vector<std::vector<Share>> from_;  // by rank and bin: ranges of the received rows
};

}  // namespace tutti::training
