// Where a plan's actions compute what: the ground of check(). Taken from the actions alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "training/pipeline/check.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// An action in a plan.
struct Site {
  int rank = -1;
  int action = -1;
  bool is_there() const { return rank >= 0; }
  bool operator==(const Site&) const = default;
};

inline size_t index(int i) { return static_cast<size_t>(i); }

struct Census {
  const Plan& plan;
  // By cell. A whole backward stands in both of its.
  std::vector<Site> forward;
  std::vector<Site> backward;  // of inputs
  std::vector<Site> weight;    // backward of weights
  bool trains = false;         // not forward alone

  size_t cell(const Entry& entry) const {
    return index(entry.micro_batch) * index(plan.schedule.chunks) + index(entry.chunk);
  }
  const Action& at(const Site& site) const {
    return plan.ranks[index(site.rank)].actions[index(site.action)];
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

// Every micro-batch passes every chunk once in each direction, in order, on one rank.
Census take_census(const Plan& plan);

// The parts of check(), each in a file of its name.

// Messages: each is sent and received once, by the right ranks, in the order of its channel, and
// all of them arrive.
void check_messages(const Census& census);

// One rank by itself: slots, versions of weights, the order of gradients.
RankBounds check_rank(const Census& census, int rank);

}  // namespace tutti::training::pipeline
