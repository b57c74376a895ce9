// Where a table's entries, or the actions of its plan, compute what: the ground of make_plan() and
// of check().
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "training/pipeline/check.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// An entry in a table, or an action in a plan.
struct Site {
  int rank = -1;
  int index = -1;
  bool is_there() const { return rank >= 0; }
  bool operator==(const Site&) const = default;
};

inline size_t index(int i) { return static_cast<size_t>(i); }

// By cell (Schedule::cell). A whole backward stands in both of its.
struct Places {
  std::vector<Site> forward;
  std::vector<Site> backward;  // of inputs
  std::vector<Site> weight;    // backward of weights
  bool trains = false;         // not forward alone
};

// Of a table. Throws Error(invalid_argument), naming rank and entry, where a micro-batch does not
// pass each chunk once in each direction, in order, on one rank.
Places find_places(const Schedule& schedule);

// Of a plan's actions.
struct Census : Places {
  const Plan& plan;

  size_t cell(const Entry& entry) const { return plan.schedule.cell(entry); }
  const Action& at(const Site& site) const {
    return plan.ranks[index(site.rank)].actions[index(site.index)];
  }
  // Where this direction of the micro-batch passes the chunk: its result is made there.
  const Site& maker(const Entry& entry) const {
    return entry.kind == Kind::forward ? forward[cell(entry)] : backward[cell(entry)];
  }
};

// "rank 2, action 7 (B3)".
std::string to_string(const Plan& plan, const Site& site);

// Throw Error(invalid_argument): the first says "rank 2, action 7 (B3): " before `what`.
[[noreturn]] void refuse(const Plan& plan, const Site& site, std::string_view what,
                         std::string_view cause);
[[noreturn]] void refuse(const Plan& plan, std::string_view what, std::string_view cause);

// Throws where the actions are not the table, in its order, and as find_places() does.
Census take_census(const Plan& plan);

// The parts of check(), each in a file of its name.

// Messages: each is sent and received once, by the right ranks, in the order of its channel, and
// all of them arrive.
void check_messages(const Census& census);

// One rank by itself: slots, versions of weights, the order of gradients.
RankBounds check_rank(const Census& census, int rank);

}  // namespace tutti::training::pipeline
