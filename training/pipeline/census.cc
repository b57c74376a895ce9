#include "training/pipeline/census.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

std::string to_string(const Action& action, bool with_chunk) {
  const std::string entry = to_string(action.entry, with_chunk);
  switch (action.kind) {
    case Action::Kind::receive:
      return cat("receive for ", entry);
    case Action::Kind::compute:
      return entry;
    case Action::Kind::send:
      return cat("send of ", entry);
    case Action::Kind::update:
      return cat("update to version ", action.version);
  }
  return "?";
}

void check_entry(const Census& census, const Site& site) {
  const Schedule& schedule = census.plan.schedule;
  const Entry& entry = census.at(site).entry;
  if (entry.micro_batch >= 0 && entry.micro_batch < schedule.micro_batches && entry.chunk >= 0 &&
      entry.chunk < schedule.chunks) {
    return;
  }
  refuse(census.plan, site, cat("there is no ", describe(entry)),
         cat("the schedule has ", schedule.micro_batches, " micro-batches and ", schedule.chunks,
             " chunks"));
}

void record(const Census& census, std::vector<Site>& sites, const Site& site) {
  const Entry& entry = census.at(site).entry;
  Site& known = sites[census.cell(entry)];
  if (known.is_there()) {
    refuse(census.plan, site,
           cat("computed already, at ", to_string(census.plan, known), ": ", describe(entry)),
           "a doubled entry");
  }
  known = site;
}

void record_all(Census& census) {
  for (Site site = {0, 0}; site.rank < census.plan.schedule.ranks; ++site.rank) {
    const auto actions = static_cast<int>(census.plan.ranks[index(site.rank)].actions.size());
    for (site.action = 0; site.action < actions; ++site.action) {
      check_entry(census, site);
      const Action& action = census.at(site);
      if (action.kind != Action::Kind::compute) continue;
      const Kind kind = action.entry.kind;
      if (kind == Kind::forward) {
        record(census, census.forward, site);
        continue;
      }
      census.trains = true;
      if (kind != Kind::backward_weight) record(census, census.backward, site);
      if (kind != Kind::backward_input) record(census, census.weight, site);
    }
  }
}

// No action computes `cell` in any of these ways: says where the table has it.
[[noreturn]] void refuse_missing(const Plan& plan, size_t cell, std::initializer_list<Kind> kinds) {
  const int micro_batch = static_cast<int>(cell) / plan.schedule.chunks;
  const int chunk = static_cast<int>(cell) % plan.schedule.chunks;
  std::string where;
  for (size_t rank = 0; rank < plan.schedule.table.size(); ++rank) {
    const std::vector<Entry>& entries = plan.schedule.table[rank];
    for (const Kind kind : kinds) {
      const auto found = std::ranges::find(entries, Entry{kind, micro_batch, chunk});
      if (found == entries.end()) continue;
      where = cat("rank ", rank, ", where the table has ", to_string(*found, true), " as entry ",
                  found - entries.begin(), ": ");
    }
  }
  refuse(plan, cat(where, "no rank computes the ", describe({*kinds.begin(), micro_batch, chunk})),
         "an entry was left out");
}

void check_follows(const Plan& plan, const Site& earlier, const Site& later) {
  if (later.rank != earlier.rank) {
    refuse(plan, later, cat("what it needs is kept on another rank, by ", to_string(plan, earlier)),
           "a micro-batch goes forward and backward through a chunk on one rank");
  }
  if (later.action < earlier.action) {
    refuse(plan, later, cat("comes before what it needs, ", to_string(plan, earlier)),
           "two entries were swapped");
  }
}

// After what it needs, if that is made on the same rank (messages: see check_messages()).
void check_input(const Census& census, const Site& site) {
  const Entry& entry = census.at(site).entry;
  if (!needs_input(census.plan.schedule, entry)) return;
  const Site& input = census.maker(input_of(entry));
  if (input.rank == site.rank) check_follows(census.plan, input, site);
}

}  // namespace

std::string to_string(const Plan& plan, const Site& site) {
  const RankPlan& rank = plan.ranks[index(site.rank)];
  return cat("rank ", site.rank, ", action ", site.action, " (",
             to_string(rank.actions[index(site.action)], rank.chunks.size() > 1), ")");
}

void refuse(const Plan& plan, const Site& site, std::string_view what, std::string_view cause) {
  refuse(plan, cat(to_string(plan, site), ": ", what), cause);
}

void refuse(const Plan& plan, std::string_view what, std::string_view cause) {
  throw Error(ErrorCode::invalid_argument, what,
              {.where = cat("plan of schedule ", plan.schedule.name),
               .cause = std::string(cause),
               .remedy = "correct the schedule, or whoever changed its plan"});
}

Census take_census(const Plan& plan) {
  const size_t cells = index(plan.schedule.micro_batches) * index(plan.schedule.chunks);
  Census census{.plan = plan,
                .forward = std::vector<Site>(cells),
                .backward = std::vector<Site>(cells),
                .weight = std::vector<Site>(cells)};
  record_all(census);
  for (size_t cell = 0; cell < cells; ++cell) {
    const Site& forward = census.forward[cell];
    const Site& backward = census.backward[cell];
    const Site& weight = census.weight[cell];
    if (!forward.is_there()) refuse_missing(plan, cell, {Kind::forward});
    if (!census.trains) continue;
    if (!backward.is_there()) refuse_missing(plan, cell, {Kind::backward, Kind::backward_input});
    if (!weight.is_there()) refuse_missing(plan, cell, {Kind::backward_weight});
    check_follows(plan, forward, backward);
    check_follows(plan, backward, weight);
  }
  for (size_t cell = 0; cell < cells; ++cell) {
    check_input(census, census.forward[cell]);
    if (census.trains) check_input(census, census.backward[cell]);
  }
  return census;
}

}  // namespace tutti::training::pipeline
