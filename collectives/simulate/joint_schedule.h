// Combines several kinds of work of the same ranks into one schedule, for simulation in one virtual
// time: computation, single messages, and collectives of subsets of ranks.
//
//   rank 0   [compute]──[send]       [ all_reduce of 0 and 1 ]      edges order a rank's
//                          ╲          │                             steps; messages
//   rank 1               [recv]──[compute]                          connect ranks
//
// If the ranks of a host behave alike (Symmetry), only the first rank of each host is added, and
// its steps represent the steps of all ranks of the host.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/simulate/schedule.h"

namespace tutti {

class JointSchedule {
 public:
  // Index of a step among the steps of its rank.
  using Step = int32_t;

  // Starts an empty schedule. Each group of `alike` consecutive ranks is walked as one; `alike`
  // divides `ranks`. The functions below take only the first rank of a group (0, alike, 2 * alike,
  // ...) unless noted.
  explicit JointSchedule(int32_t ranks, Symmetry symmetry = Symmetry::none, int32_t alike = 1);

  // Adds a computation that occupies the rank's processor for `us` microseconds.
  Step compute(int32_t rank, double us);
  // Adds a message. Returns the sender's step and the receiver's step, which ends when the message
  // arrives.
  std::pair<Step, Step> message(int32_t from, int32_t to, double bytes);
  // Adds a collective. `members[i]` is the rank that is rank i of the collective; it lists all
  // ranks of the collective, not only the walked ones. The collective must have this schedule's
  // symmetry: ranks that are alike here are alike in the collective. Returns two steps for each
  // walked member, in order: a step to be ordered after the member's prerequisites, and a step that
  // ends when the member's part of the collective ends. Neither step takes time.
  std::vector<std::pair<Step, Step>> collective(const Schedule& its, double bytes,
                                                std::span<const int32_t> members);
  // Makes `later` begin after `earlier` has ended.
  void order(int32_t rank, Step earlier, Step later);

  // Returns the schedule and leaves this object empty.
  Schedule take();

 private:
  struct Message {
    Step sender;
    int32_t to;
    Step receiver;
  };
  struct Rank {
    std::vector<StepKind> kinds;
    std::vector<double> bytes;
    std::vector<double> compute_us;
    std::vector<int32_t> waits;
    std::vector<std::pair<Step, Step>> edges;
    std::vector<Message> messages;  // ascending by sender
  };

  Rank& at(int32_t rank) { return ranks_[static_cast<size_t>(rank / alike_)]; }
  Step add(int32_t rank, StepKind kind, double bytes, double compute_us = 0);
  void add_program(const Schedule& its, int32_t walked, double chunk_bytes, int32_t rank);
  void append(Rank& rank, int32_t number, Schedule& all) const;

  int32_t alike_;
  Symmetry symmetry_;
  std::vector<Rank> ranks_;
};

}  // namespace tutti
