// From a schedule to what each rank does: messages, slots of memory and versions of weights,
// derived from the table by pure passes.
//
//   table of rank 1   F0       F1       B0 ...
//   plan of rank 1    receive F0 | receive F1, F0, send | receive B0, F1, send | B0, send ...
//
// A receive is posted one entry before the entry that needs it, so that the message travels while
// that one computes, and never later than its channel's order asks for: messages from one rank to
// another arrive in the order in which they are sent. Sends are started after their entry and never
// waited for within a step.
#pragma once

#include <cstddef>
#include <vector>

#include "training/pipeline/schedule.h"

namespace tutti::training::pipeline {

struct Action {
  enum class Kind {
    receive,  // post the receive of what `entry` needs: activations, or the gradient of its output
    compute,  // `entry`, once what it needs is there
    send,     // what `entry` has made, to the rank whose entry needs it
    update,   // change the weights to `version` (schedules that are not flushed)
  };
  Kind kind = Kind::compute;
  Entry entry;      // of an update: the last one it waits for
  int peer = -1;    // of receive and send
  int slot = 0;     // memory of this micro-batch's activations in this chunk on this rank
  int version = 0;  // compute: of the weights to use, updates since the start; 0 if flushed
  bool operator==(const Action&) const = default;
};

struct RankPlan {
  std::vector<Action> actions;
  std::vector<int> chunks;  // that lie on this rank, ascending
  int slots = 0;            // the most micro-batches (of any of its chunks) under way at once
  int versions = 1;         // the most versions of its weights that are needed at once: each from
                            // the update that makes it to its last use, the newest one always
};

struct Plan {
  Schedule schedule;
  std::vector<RankPlan> ranks;
  std::vector<std::vector<int>> holders;  // by chunk: the ranks it lies on, ascending

  // Who computes the micro-batch's forward through a chunk.
  int rank_of(int micro_batch, int chunk) const {
    return forward_rank[schedule.cell({.micro_batch = micro_batch, .chunk = chunk})];
  }
  std::vector<int> forward_rank;  // -1: nobody
};

// The entry whose result `entry` needs, by message or from the same rank: the chunk before for
// forward, the chunk after for backward. None for the first chunk's forward and for
// backward_weight; the last chunk's backward needs its own forward only. The entry given is of the
// same kind as `entry`: in the table, backward and backward_input may stand for each other.
bool needs_input(const Schedule& schedule, const Entry& entry);
Entry input_of(const Entry& entry);

// Pure. Throws Error(invalid_argument), naming rank and entry, for a table in which a micro-batch
// does not pass each chunk once in each direction, on one rank (forward-only tables: forward alone;
// there, no weights change and a slot is free again after its forward).
Plan make_plan(const Schedule& schedule);

}  // namespace tutti::training::pipeline
