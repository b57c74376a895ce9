#include "training/pipeline/check.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "training/pipeline/action_index.h"

namespace tutti::training::pipeline {
namespace {

std::string list(const std::vector<int>& ranks) { return cat('{', rank_ranges(ranks), '}'); }

void check_sizes(const Plan& plan) {
  if (plan.ranks.size() == plan.schedule.table.size()) return;
  refuse(
      plan,
      cat("a plan for ", plan.ranks.size(), " ranks and a table for ", plan.schedule.table.size()),
      "each rank has a row and a plan");
}

// Checks that the plan's holders of chunks are the ranks whose entries compute them.
void check_holders(const ActionIndex& action_index) {
  const Plan& plan = action_index.plan;
  const size_t chunks = index(plan.schedule.chunks);
  std::vector<std::vector<bool>> lies_on(chunks, std::vector<bool>(plan.ranks.size()));
  for (size_t cell = 0; cell < action_index.forward.size(); ++cell) {
    const int rank = action_index.forward[cell].rank;
    lies_on[cell % chunks][index(rank)] = true;
    if (plan.forward_rank.size() != action_index.forward.size() ||
        plan.forward_rank[cell] != rank) {
      refuse(plan, action_index.forward[cell],
             "the plan's forward_rank assigns this to another rank",
             "the plan was changed in part");
    }
  }
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<int> holders;
    for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
      if (lies_on[chunk][index(rank)]) holders.push_back(rank);
    }
    if (plan.holders.size() != chunks || plan.holders[chunk] != holders) {
      refuse(plan,
             cat("chunk ", chunk, " is computed by ranks ", list(holders),
                 "; the plan's holders differ"),
             "the plan was changed in part");
    }
    if (plan.schedule.updates != Updates::flushed && action_index.trains && holders.size() > 1) {
      refuse(plan,
             cat("chunk ", chunk, " is on ranks ", list(holders),
                 ", and each updates its weights independently"),
             "only flushed schedules sum gradients over ranks");
    }
  }
}

void check_chunks(const Plan& plan, int rank) {
  const std::vector<int>& chunks = plan.ranks[index(rank)].chunks;
  std::vector<int> expected;
  for (int chunk = 0; chunk < plan.schedule.chunks; ++chunk) {
    if (std::ranges::count(plan.holders[index(chunk)], rank) > 0) expected.push_back(chunk);
  }
  if (chunks != expected) {
    refuse(
        plan,
        cat("rank ", rank, ": computes chunks ", list(expected), "; its plan has ", list(chunks)),
        "the plan was changed in part");
  }
  for (const int chunk : chunks) {
    const std::vector<int>& holders = plan.holders[index(chunk)];
    const std::vector<int>& first = plan.holders[index(chunks.front())];
    if (holders == first) continue;
    refuse(plan,
           cat("rank ", rank, ": its chunk ", chunk, " is on ranks ", list(holders),
               ", but its chunk ", chunks.front(), " is on ranks ", list(first)),
           "gradients of all chunks of a rank are summed together, over the same ranks");
  }
}

}  // namespace

Bounds check(const Plan& plan) {
  check_sizes(plan);
  const ActionIndex action_index = index_actions(plan);
  check_holders(action_index);
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) check_chunks(plan, rank);
  check_messages(action_index);
  Bounds bounds;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    bounds.ranks.push_back(check_rank(action_index, rank));
  }
  return bounds;
}

}  // namespace tutti::training::pipeline
