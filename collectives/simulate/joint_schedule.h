// Several kinds of work of the same ranks as one schedule, to be played in one virtual time: what
// ranks compute, single messages between them, and collectives of some of them.
//
//   rank 0   [compute]──[send]       [ all_reduce of 0 and 1 ]      what follows what is said for
//                          ╲          │                             each rank; messages tie ranks
//   rank 1               [recv]──[compute]                          together
//
// Where ranks of a host do alike (Symmetry), only the first of each host is told of, and what it
// does stands for what all of them do.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collectives/simulate/schedule.h"

namespace tutti {

class JointSchedule {
 public:
  // Of the rank that adds it. Steps are referred to together with their rank.
  using Step = int32_t;

  // `alike` ranks, which divides `ranks`, are walked as one; below, ranks are those that are walked
  // (0, alike, 2 alike, ...) unless it says otherwise.
  explicit JointSchedule(int32_t ranks, Symmetry symmetry = Symmetry::none, int32_t alike = 1);

  // Keeps the rank's processor busy for so long.
  Step compute(int32_t rank, double us);
  // Returns the sender's step and the receiver's, which ends when the message is there.
  std::pair<Step, Step> message(int32_t from, int32_t to, double bytes);
  // A collective of ranks that are known to it as 0, 1, ...: `members`, all of them, walked or not.
  // Its symmetry is this one's, and ranks that are alike are alike in it. For each member that is
  // walked, in their order, returns what is to be ordered after what it waits for, and what ends
  // when its part has ended; both take no time.
  std::vector<std::pair<Step, Step>> collective(const Schedule& its, double bytes,
                                                std::span<const int32_t> members);
  // The rank begins `later` when `earlier` has ended.
  void order(int32_t rank, Step earlier, Step later);

  // All that was added. Nothing is left here.
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
