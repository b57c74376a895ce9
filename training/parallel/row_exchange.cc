#include "training/parallel/row_exchange.h"

#include <chrono>
#include <functional>
#include <numeric>

#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

size_t at(int rank) { return static_cast<size_t>(rank); }

int64_t sum_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Blocks blocks_of(const std::vector<int64_t>& rows, int64_t cols) {
  std::vector<uint64_t> counts;
  for (const int64_t count : rows) counts.push_back(static_cast<uint64_t>(count * cols));
  return Blocks::of(counts);
}

}  // namespace

void RowExchange::Travel::wait() {
  if (mesh_ == nullptr) return;
  const Clock::time_point start = Clock::now();
  work_.wait();
  std::exchange(mesh_, nullptr)->add_said(Axis::expert, "all_to_all", bytes_, start);
}

int RowExchange::rank_of(int64_t bin, int64_t bins, int ranks) {
  int rank = 0;
  while (bin >= bins_of(bins, rank, ranks).first + bins_of(bins, rank, ranks).count) ++rank;
  return rank;
}

RowExchange::RowExchange(Pass& pass, const MeshPlace& place, AxisSet axes,
                         std::span<const int64_t> counts)
    : axes_(axes), own_(place.number_along(axes)) {
  const int ranks = place.ranks_along(axes);
  const auto bins = std::ssize(counts);
  const auto shares = [&](int rank) {
    const Share its = bins_of(bins, rank, ranks);
    return counts.subspan(static_cast<size_t>(its.first), static_cast<size_t>(its.count));
  };
  const std::span<const int64_t> own = shares(own_);
  std::vector<int64_t> all;  // by rank, for this rank's bins
  for (int rank = 0; rank < ranks; ++rank) {
    sent_.push_back(sum_of(shares(rank)));
    all.insert(all.end(), own.begin(), own.end());
  }
  if (pass.mesh != nullptr) {
    std::vector<int64_t> to, from(at(ranks), std::ssize(own));
    for (int rank = 0; rank < ranks; ++rank) to.push_back(std::ssize(shares(rank)));
    pass.mesh->group(axes).all_to_allv({counts.data(), counts.size(), DType::i64}, blocks_of(to, 1),
                                       {all.data(), all.size(), DType::i64}, blocks_of(from, 1));
  }
  int64_t first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto its = std::span<const int64_t>(all).subspan(at(rank) * own.size(), own.size());
    std::vector<Share>& rows = from_.emplace_back();
    for (const int64_t count : its) rows.push_back({std::exchange(first, first + count), count});
    received_.push_back(sum_of(its));
  }
}

int64_t RowExchange::received() const { return sum_of(received_); }

RowExchange::Travel RowExchange::forth(Pass& pass, ConstTensor sent, Tensor received) const {
  return start(pass, sent, sent_, received, received_);
}

RowExchange::Travel RowExchange::back(Pass& pass, ConstTensor received, Tensor sent) const {
  return start(pass, received, received_, sent, sent_);
}

RowExchange::Travel RowExchange::start(Pass& pass, ConstTensor from,
                                       const std::vector<int64_t>& from_counts, Tensor to,
                                       const std::vector<int64_t>& to_counts) const {
  if (pass.mesh == nullptr) {
    zero(to);
    return {};
  }
  const int64_t travelling = from.rows - from_counts[at(own_)];
  const double bytes =
      static_cast<double>(travelling * from.cols) * static_cast<double>(size_of(from.dtype));
  // What is empty may lie where the other begins, and would be taken for the same memory.
  Work work = pass.mesh->group(axes_).all_to_allv_async(
      {from.empty() ? nullptr : from.data, static_cast<uint64_t>(from.size()), from.dtype},
      blocks_of(from_counts, from.cols),
      {to.empty() ? nullptr : to.data, static_cast<uint64_t>(to.size()), to.dtype},
      blocks_of(to_counts, to.cols));
  return {pass.mesh, std::move(work), bytes};
}

}  // namespace tutti::training
