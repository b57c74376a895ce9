// Finds a table's entries, or the actions of its plan, by what they compute; used by make_plan()
// and check().
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "training/pipeline/check.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// Position of an entry in a table, or of an action in a plan.
struct Site {
  int rank = -1;
  int index = -1;
  bool is_there() const { return rank >= 0; }
  bool operator==(const Site&) const = default;
};

inline size_t index(int i) { return static_cast<size_t>(i); }

// The positions of all entries, indexed by Schedule::cell. A combined backward is listed in both
// `backward` and `weight`.
struct Places {
  std::vector<Site> forward;
  std::vector<Site> backward;  // entries backward or backward_input
  std::vector<Site> weight;    // entries backward or backward_weight
  bool trains = false;         // true if the table has backward entries
};

// Indexes a table. Throws Error(invalid_argument), naming rank and entry, unless every micro-batch
// passes each chunk once in each direction, in order, on one rank. A table without backward entries
// needs the forward direction only.
Places find_places(const Schedule& schedule);

// The index of a plan's actions.
struct ActionIndex : Places {
  const Plan& plan;

  size_t cell(const Entry& entry) const { return plan.schedule.cell(entry); }
  const Action& at(const Site& site) const {
    return plan.ranks[index(site.rank)].actions[index(site.index)];
  }
  // Returns the position of the action that computes the result of `entry`: the forward, or the
  // backward or backward_input, of the entry's micro-batch through its chunk.
  const Site& maker(const Entry& entry) const {
    return entry.kind == Kind::forward ? forward[cell(entry)] : backward[cell(entry)];
  }
};

// Returns a position as text: "rank 2, action 7 (B3)".
std::string to_string(const Plan& plan, const Site& site);

// Throw Error(invalid_argument). The first function prefixes `what` by the position: "rank 2,
// action 7 (B3): ".
[[noreturn]] void refuse(const Plan& plan, const Site& site, std::string_view what,
                         std::string_view cause);
[[noreturn]] void refuse(const Plan& plan, std::string_view what, std::string_view cause);

// Indexes a plan. Throws Error(invalid_argument) unless its actions compute the table's entries in
// the table's order, and for tables that find_places() rejects.
ActionIndex index_actions(const Plan& plan);

// The functions below are parts of check(), each in a file of its name.

// Checks that each message is sent and received once, by the right ranks, in the order of its
// channel, and that no rank waits forever.
void check_messages(const ActionIndex& action_index);

// Checks the slots, versions of weights, and order of gradients of one rank.
RankBounds check_rank(const ActionIndex& action_index, int rank);

}  // namespace tutti::training::pipeline
