#include "training/parallel/row_exchange.h"

#include <chrono>
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

void RowExchange::Transfer::wait() {
  if (mesh_ == nullptr) return;
  const Clock::time_point start = Clock::now();
  work_.wait();
  std::exchange(mesh_, nullptr)->add_unit_traffic(Axis::expert, "all_to_all", bytes_, start);
}

RowExchange::RowExchange(const RowPeers& peers, std::span<const int64_t> counts)
    : ranks_(peers.ranks), own_(peers.own) {
  const auto ranks = std::ssize(peers.bins);
  std::span<const int64_t> left = counts, own;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto its = left.first(static_cast<size_t>(peers.bins[at(rank)]));
    left = left.subspan(its.size());
    sent_.push_back(sum_of(its));
    if (rank == own_) own = its;
  }
  std::vector<int64_t> all;  // by rank, and bin of this rank: number of rows
  for (int rank = 0; rank < ranks; ++rank) all.insert(all.end(), own.begin(), own.end());
  if (peers.ranks != nullptr) {
    const std::vector<int64_t> from(at(static_cast<int>(ranks)), std::ssize(own));
    exchange({counts.data(), counts.size(), DType::i64}, blocks_of(peers.bins, 1),
             {all.data(), all.size(), DType::i64}, blocks_of(from, 1))
        .wait();
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

// Sets the address of an empty buffer to null. If it equalled the other buffer's address, the call
// would count as in-place.
Work RowExchange::exchange(ConstBuffer from, const Blocks& from_blocks, Buffer to,
                           const Blocks& to_blocks) const {
  if (from.count == 0) from.data = nullptr;
  if (to.count == 0) to.data = nullptr;
  return ranks_->all_to_allv_async(from, from_blocks, to, to_blocks);
}

RowExchange::Transfer RowExchange::dispatch(Pass& pass, ConstTensor sent, Tensor received) const {
  return start(pass, sent, sent_, received, received_);
}

RowExchange::Transfer RowExchange::return_rows(Pass& pass, ConstTensor received,
                                               Tensor sent) const {
  return start(pass, received, received_, sent, sent_);
}

RowExchange::Transfer RowExchange::start(Pass& pass, ConstTensor from,
                                         const std::vector<int64_t>& from_counts, Tensor to,
                                         const std::vector<int64_t>& to_counts) const {
  const int64_t travelling = from.rows - from_counts[at(own_)];
  const double bytes =
      static_cast<double>(travelling * from.cols) * static_cast<double>(size_of(from.dtype));
  if (ranks_ == nullptr) {
    pass.record_unsent({Axis::expert, "all_to_all", bytes});
    zero(to);
    return {};
  }
  Work work = exchange(as_buffer(from), blocks_of(from_counts, from.cols), as_buffer(to),
                       blocks_of(to_counts, to.cols));
  return {pass.mesh, std::move(work), bytes};
}

}  // namespace tutti::training
