#include "training/pipeline/check.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "training/pipeline/census.h"

namespace tutti::training::pipeline {
namespace {

std::string list(const std::vector<int>& ranks) { return cat('{', rank_ranges(ranks), '}'); }

void check_sizes(const Plan& plan) {
  const Schedule& schedule = plan.schedule;
  if (schedule.ranks < 1 || schedule.micro_batches < 1 || schedule.chunks < 1 ||
      plan.ranks.size() != index(schedule.ranks) || schedule.table.size() != plan.ranks.size()) {
    refuse(plan,
           cat("a plan for ", plan.ranks.size(), " ranks and a table for ", schedule.table.size(),
               ", of a schedule of ", schedule.ranks, " ranks, ", schedule.micro_batches,
               " micro-batches and ", schedule.chunks, " chunks"),
           "there is at least one of each, and each rank has a row and a plan");
  }
  if (schedule.updates != Updates::flushed &&
      (schedule.accumulated < 1 || schedule.micro_batches % schedule.accumulated != 0)) {
    refuse(plan,
           cat("an update after every ", schedule.accumulated, " of ", schedule.micro_batches,
               " micro-batches"),
           "the micro-batches of an update must divide those of the table");
  }
}

// Which chunk lies on which ranks, by who computes what, is what the plan says.
void check_holders(const Census& census) {
  const Plan& plan = census.plan;
  const size_t chunks = index(plan.schedule.chunks);
  std::vector<std::vector<bool>> lies_on(chunks, std::vector<bool>(plan.ranks.size()));
  for (size_t cell = 0; cell < census.forward.size(); ++cell) {
    const int rank = census.forward[cell].rank;
    lies_on[cell % chunks][index(rank)] = true;
    if (plan.forward_rank.size() != census.forward.size() || plan.forward_rank[cell] != rank) {
      refuse(plan, census.forward[cell], "the plan's forward_rank says that another rank does this",
             "a plan that was changed in part");
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
                 "; the plan's holders do not say so"),
             "a plan that was changed in part");
    }
    if (plan.schedule.updates != Updates::flushed && census.trains && holders.size() > 1) {
      refuse(plan,
             cat("chunk ", chunk, " lies on ranks ", list(holders),
                 ", and each changes its weights by itself"),
             "only schedules that are flushed sum gradients over ranks");
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
        "a plan that was changed in part");
  }
  for (const int chunk : chunks) {
    const std::vector<int>& holders = plan.holders[index(chunk)];
    const std::vector<int>& first = plan.holders[index(chunks.front())];
    if (holders == first) continue;
    refuse(plan,
           cat("rank ", rank, ": its chunk ", chunk, " lies on ranks ", list(holders),
               ", its chunk ", chunks.front(), " on ranks ", list(first)),
           "gradients of all chunks of a rank are summed together, over the same ranks");
  }
}

// What is computed is the table, in its order.
void check_table(const Plan& plan) {
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    const std::vector<Entry>& entries = plan.schedule.table[index(rank)];
    const std::vector<Action>& actions = plan.ranks[index(rank)].actions;
    size_t next = 0;
    for (int i = 0; index(i) < actions.size(); ++i) {
      if (actions[index(i)].kind != Action::Kind::compute) continue;
      if (next < entries.size() && entries[next] == actions[index(i)].entry) {
        ++next;
        continue;
      }
      refuse(plan, {rank, i},
             next < entries.size()
                 ? cat("the table has ", to_string(entries[next], true), " here, as entry ", next)
                 : std::string("the table of this rank has ended"),
             "entries were swapped, or put on another rank");
    }
    if (next < entries.size()) {
      refuse(plan,
             cat("rank ", rank, ", at its end: entry ", next, " of the table, the ",
                 describe(entries[next]), ", is not computed"),
             "entries were left out, or put on another rank");
    }
  }
}

}  // namespace

Bounds check(const Plan& plan) {
  check_sizes(plan);
  const Census census = take_census(plan);
  check_holders(census);
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) check_chunks(plan, rank);
  check_messages(census);
  Bounds bounds;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    bounds.ranks.push_back(check_rank(census, rank));
  }
  check_table(plan);
  return bounds;
}

}  // namespace tutti::training::pipeline
