#include "collectives/simulate/trouble.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace tutti {

namespace {

// Maximum number of ranks that are checked; a longer list would be useless.
constexpr int32_t kMostAsked = 4096;

std::vector<int> unreachable(Network& network, int32_t ranks, int32_t from) {
  std::vector<int> found;
  std::vector<Arc> way;
  for (int32_t rank = 0; rank < std::min(ranks, kMostAsked); ++rank) {
    way.clear();
    if (rank != from && !network.route(from, rank, way)) found.push_back(rank);
  }
  return found;
}

void sort_out(std::vector<int>& ranks) {
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
}

}  // namespace

Error cut_off(Network& network, int32_t ranks, int32_t from, int32_t to) {
  std::vector<int> missing = unreachable(network, ranks, from);
  if (2 * static_cast<int32_t>(missing.size()) > ranks) missing = unreachable(network, ranks, to);
  const auto words = [&](int32_t rank) {
    return cat("rank ", rank, " (", network.graph().node(network.node_of(rank)).name, ")");
  };
  return Error(ErrorCode::connection_lost,
               cat("there is no path from ", words(from), " to ", words(to)),
               {.where = cat("cut off: rank ", rank_ranges(missing)),
                .cause = "the failed links were the only ones, or no node there forwards messages",
                .remedy = "keep another link, or use a network with more paths"});
}

Error stopped(const Schedule& schedule, std::span<const int32_t> failed,
              const std::vector<int>& unfinished) {
  if (failed.empty())
    return Error(ErrorCode::internal, "the simulation stopped before it completed");
  const auto has_failed = [&](int32_t rank) { return std::ranges::count(failed, rank) > 0; };
  std::vector<int> direct;
  for (const Schedule::Message& message : schedule.messages) {
    if (has_failed(message.from) && !has_failed(message.to)) direct.push_back(message.to);
  }
  sort_out(direct);
  std::vector<int> others;
  std::ranges::set_difference(unfinished, direct, std::back_inserter(others));
  std::erase_if(others, has_failed);
  std::vector<int> gone(failed.begin(), failed.end());
  sort_out(gone);
  return Error(
      ErrorCode::rank_died,
      cat("rank ", rank_ranges(gone), " failed, so the calls that need it do not complete"),
      {.where =
           cat("ranks that wait for it: ", rank_ranges(direct),
               others.empty() ? "" : cat("; ranks that wait for these: ", rank_ranges(others))),
       .cause = "every rank's contribution is needed",
       .remedy = "continue without it: create a communicator of the surviving ranks"});
}

}  // namespace tutti
