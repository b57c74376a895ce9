#include "training/parallel/sum_over_ranks.h"

#include <algorithm>
#include <cstdint>

#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

// Least bytes of a turn's sum, and least rows of a rank in a turn. With smaller turns, overlap
// costs more than it saves.
constexpr int64_t kLeastBytes = 256 << 10;
constexpr int64_t kLeastRows = 64;
constexpr int64_t kMostTurns = 4;

}  // namespace

SumOverRanks::SumOverRanks(Pass& pass, const MeshPlace& place, const WholeShape& whole,
                           const ActivationLayout& to, bool overlaps)
    : pass_(&pass), place_(place), whole_(whole), to_(to), ranks_(place.size(Axis::tensor)) {
  if (!overlaps || ranks_ == 1 || pass.mesh == nullptr || pass.slices > 1) return;
  const int64_t bytes = whole.rows * whole.cols * static_cast<int64_t>(size_of(pass.dtype));
  const int64_t most = std::min(bytes / kLeastBytes, whole.rows / (kLeastRows * ranks_));
  turns_ = static_cast<int>(std::clamp<int64_t>(most, 1, kMostTurns));
  for (int turn = 0; turn < turns_; ++turn) {
    for (int rank = 0; rank < (to_rows() ? ranks_ : 1); ++rank) {
      parts_.push_back(rows_of(rank, turn));
    }
  }
}

Share SumOverRanks::rows_of(int rank, int turn) const {
  const Share all = to_rows() ? even_share(whole_.rows, rank, ranks_) : Share{0, whole_.rows};
  const Share its = even_share(all.count, turn, turns_);
  return {all.first + its.first, its.count};
}

Work SumOverRanks::start(Tensor result, int turn) {
  Communicator& ranks = pass_->mesh->along(Axis::tensor);
  const int own = to_rows() ? place_.place(Axis::tensor) : 0;
  const Share rows = rows_of(own, turn);
  const Buffer target = as_buffer(result.row_range(rows.first, rows.count));
  if (!to_rows()) return ranks.all_reduce_async(as_const(target), target);
  std::vector<uint64_t> counts, displacements;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Share its = rows_of(rank, turn);
    counts.push_back(static_cast<uint64_t>(its.count * result.cols));
    displacements.push_back(static_cast<uint64_t>(its.first * result.cols));
  }
  return ranks.reduce_scatterv_async(as_const(as_buffer(result)), target,
                                     Blocks::of(counts, displacements));
}

void SumOverRanks::done(Tensor result, size_t part) {
  const size_t of_a_turn = parts_.size() / static_cast<size_t>(turns_);
  if ((part + 1) % of_a_turn == 0)
    sums_.push_back(start(result, static_cast<int>(part / of_a_turn)));
  for (Work& sum : sums_) sum.test();
}

Tensor SumOverRanks::finish(Tensor result) {
  if (sums_.empty()) return convert_layout(*pass_, place_, result, whole_, kTensorPartial, to_);
  const auto start = std::chrono::steady_clock::now();
  for (Work& sum : sums_) sum.wait();
  const double moved = static_cast<double>(result.bytes()) * (ranks_ - 1) / ranks_;
  pass_->mesh->add_unit_traffic(Axis::tensor, to_rows() ? "reduce_scatter" : "all_reduce",
                                to_rows() ? moved : 2 * moved, start);
  const Share own = even_share(whole_.rows, place_.place(Axis::tensor), ranks_);
  return to_rows() ? result.row_range(own.first, own.count) : result;
}

}  // namespace tutti::training
