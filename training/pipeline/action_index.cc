#include "training/pipeline/action_index.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

// Tables.

const Entry& entry_at(const Schedule& schedule, const Site& site) {
  return schedule.table[index(site.rank)][index(site.index)];
}

[[noreturn]] void refuse(const Schedule& schedule, const std::string& what,
                         const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, what,
              {.where = cat("schedule ", schedule.name),
               .cause = cause,
               .remedy = "correct the function that builds this table"});
}

std::string text(const Schedule& schedule, const Site& site) {
  return cat("rank ", site.rank, ", entry ", site.index, " (",
             to_string(entry_at(schedule, site), schedule.chunks > schedule.ranks), ")");
}

void check_sizes(const Schedule& s) {
  if (s.ranks < 1 || s.micro_batches < 1 || s.chunks < 1 || s.table.size() != index(s.ranks)) {
    refuse(s,
           cat("a table of ", s.table.size(), " ranks for ", s.ranks, " ranks, ", s.micro_batches,
               " micro-batches and ", s.chunks, " chunks"),
           "there is at least one of each, and one row for each rank");
  }
  if (s.updates == Updates::flushed) return;
  if (s.accumulated < 1 || s.micro_batches % s.accumulated != 0) {
    refuse(s,
           cat("an update after every ", s.accumulated, " of ", s.micro_batches, " micro-batches"),
           "the micro-batches of an update must divide those of the table");
  }
}

bool is_of(const Schedule& schedule, const Entry& entry) {
  return entry.micro_batch >= 0 && entry.micro_batch < schedule.micro_batches && entry.chunk >= 0 &&
         entry.chunk < schedule.chunks;
}

std::string numbers(const Schedule& schedule) {
  return cat("the schedule has ", schedule.micro_batches, " micro-batches and ", schedule.chunks,
             " chunks");
}

void record(const Schedule& schedule, std::vector<Site>& sites, const Site& site) {
  const Entry& entry = entry_at(schedule, site);
  Site& known = sites[schedule.cell(entry)];
  if (known.is_there()) {
    refuse(schedule,
           cat(text(schedule, site), ": ", describe(entry), " was computed already, at ",
               text(schedule, known)),
           "a duplicate entry, or an entry with the wrong micro-batch or chunk");
  }
  known = site;
}

// Checks that `later` exists, on the rank of `earlier` and after it.
void check_follows(const Schedule& schedule, const Site& earlier, const Site& later,
                   const Entry& wanted) {
  if (!later.is_there()) {
    refuse(schedule,
           cat(text(schedule, earlier), ": no rank computes the ", describe(wanted),
               " that belongs to it"),
           "an entry is missing");
  }
  if (later.rank != earlier.rank) {
    refuse(schedule,
           cat(text(schedule, later), ": its input is kept on another rank, by ",
               text(schedule, earlier)),
           "a micro-batch goes forward and backward through a chunk on one rank");
  }
  if (later.index < earlier.index) {
    refuse(schedule,
           cat(text(schedule, later), ": comes before its input, ", text(schedule, earlier)),
           "two entries in the wrong order");
  }
}

// Checks that every micro-batch passes every chunk once in each direction.
void check_complete(const Schedule& schedule, const Places& places) {
  for (int m = 0; m < schedule.micro_batches; ++m) {
    for (int c = 0; c < schedule.chunks; ++c) {
      const size_t at = schedule.cell({.micro_batch = m, .chunk = c});
      if (!places.forward[at].is_there()) {
        refuse(schedule, cat("no rank computes the ", describe({Kind::forward, m, c})),
               "an entry is missing");
      }
      if (!places.trains) continue;
      check_follows(schedule, places.forward[at], places.backward[at], {Kind::backward, m, c});
      if (places.weight[at] == places.backward[at]) continue;
      check_follows(schedule, places.backward[at], places.weight[at],
                    {Kind::backward_weight, m, c});
    }
  }
}

// Plans.

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

// Returns, for each entry of the rank's row, the action that computes it. Checks that the rank
// computes the entries of its row, in the row's order.
std::vector<int> computing_actions(const Plan& plan, int rank) {
  const std::vector<Entry>& entries = plan.schedule.table[index(rank)];
  const std::vector<Action>& actions = plan.ranks[index(rank)].actions;
  std::vector<int> computing;
  for (int i = 0; index(i) < actions.size(); ++i) {
    const Entry& entry = actions[index(i)].entry;
    if (!is_of(plan.schedule, entry)) {
      refuse(plan, {rank, i}, cat("there is no ", describe(entry)), numbers(plan.schedule));
    }
    if (actions[index(i)].kind != Action::Kind::compute) continue;
    const size_t next = computing.size();
    if (next == entries.size() || entries[next] != entry) {
      refuse(plan, {rank, i},
             next < entries.size()
                 ? cat("the table has ", to_string(entries[next], true), " here, as entry ", next)
                 : std::string("the table of this rank has ended"),
             "entries were swapped, or moved to another rank");
    }
    computing.push_back(i);
  }
  if (computing.size() < entries.size()) {
    const size_t next = computing.size();
    refuse(plan,
           cat("rank ", rank, ", at its end: entry ", next, " of the table, the ",
               describe(entries[next]), ", is not computed"),
           "entries are missing, or were moved to another rank");
  }
  return computing;
}

// Checks that an entry follows its input, if the same rank computes both. (check_messages() checks
// inputs from other ranks.)
void check_input(const ActionIndex& action_index, const Site& site) {
  const Entry& entry = action_index.at(site).entry;
  if (!needs_input(action_index.plan.schedule, entry)) return;
  const Site& input = action_index.maker(input_of(entry));
  if (input.rank != site.rank || input.index < site.index) return;
  refuse(action_index.plan, site,
         cat("comes before its input, ", to_string(action_index.plan, input)),
         "two entries were swapped");
}

}  // namespace

Places find_places(const Schedule& schedule) {
  check_sizes(schedule);
  const size_t cells = index(schedule.micro_batches) * index(schedule.chunks);
  Places places = {std::vector<Site>(cells), std::vector<Site>(cells), std::vector<Site>(cells)};
  for (Site site = {0, 0}; site.rank < schedule.ranks; ++site.rank) {
    const auto entries = std::ssize(schedule.table[index(site.rank)]);
    for (site.index = 0; site.index < entries; ++site.index) {
      const Entry& entry = entry_at(schedule, site);
      if (!is_of(schedule, entry)) {
        refuse(schedule, cat(text(schedule, site), ": there is no ", describe(entry)),
               numbers(schedule));
      }
      if (entry.kind == Kind::forward) {
        record(schedule, places.forward, site);
        continue;
      }
      places.trains = true;
      if (entry.kind != Kind::backward_weight) record(schedule, places.backward, site);
      if (entry.kind != Kind::backward_input) record(schedule, places.weight, site);
    }
  }
  check_complete(schedule, places);
  return places;
}

std::string to_string(const Plan& plan, const Site& site) {
  const RankPlan& rank = plan.ranks[index(site.rank)];
  return cat("rank ", site.rank, ", action ", site.index, " (",
             to_string(rank.actions[index(site.index)], rank.chunks.size() > 1), ")");
}

void refuse(const Plan& plan, const Site& site, std::string_view what, std::string_view cause) {
  refuse(plan, cat(to_string(plan, site), ": ", what), cause);
}

void refuse(const Plan& plan, std::string_view what, std::string_view cause) {
  throw Error(ErrorCode::invalid_argument, what,
              {.where = cat("plan of schedule ", plan.schedule.name),
               .cause = std::string(cause),
               .remedy = "correct the schedule, or the code that changed its plan"});
}

ActionIndex index_actions(const Plan& plan) {
  ActionIndex action_index{find_places(plan.schedule), plan};
  std::vector<std::vector<int>> computing;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    computing.push_back(computing_actions(plan, rank));
  }
  for (std::vector<Site>* sites :
       {&action_index.forward, &action_index.backward, &action_index.weight}) {
    for (Site& site : *sites) {
      if (site.is_there()) site.index = computing[index(site.rank)][index(site.index)];
    }
  }
  for (const Site& site : action_index.forward) check_input(action_index, site);
  if (action_index.trains) {
    for (const Site& site : action_index.backward) check_input(action_index, site);
  }
  return action_index;
}

}  // namespace tutti::training::pipeline
