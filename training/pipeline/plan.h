// Derives each rank's actions from a schedule: messages, memory slots and versions of weights. Pure
// functions compute them from the table.
//
//   table of rank 1   F0       F1       B0 ...
//   plan of rank 1    receive F0 | receive F1, F0, send | receive B0, F1, send | B0, send ...
//
// A receive is posted one entry before the entry that needs it, so that the message overlaps with
// computation. It is posted even earlier if the channel requires that: messages from one rank to
// another arrive in the order in which they are sent. A send starts after its entry, and no later
// action waits for it.
#pragma once

#include <cstddef>
#include <vector>

#include "training/pipeline/schedule.h"

namespace tutti::training::pipeline {

struct Action {
  enum class Kind {
    receive,  // post the receive for `entry`: for its input, or for its output's gradient
    compute,  // compute `entry`, once its input is complete
    send,     // send the result of `entry` to the rank that needs it
    update,   // update the weights to `version` (schedules without flushes)
  };
  Kind kind = Kind::compute;
  Entry entry;    // action `update`: the last entry whose gradient it needs
  int peer = -1;  // actions `receive` and `send`: the other rank
  // index of the memory that has this micro-batch's activations in this chunk on this rank
  int slot = 0;
  // action `compute`: version of the weights that the entry uses; action `update`: version that the
  // update creates. Versions count the updates since the start.
  int version = 0;
  bool operator==(const Action&) const = default;
};

struct RankPlan {
  std::vector<Action> actions;
  std::vector<int> chunks;  // the chunks on this rank, ascending
  // Maximum number of slots in use at once. A micro-batch has one slot in each chunk.
  int slots = 0;
  // Maximum number of weight versions in use at once. A version is in use from the update that
  // creates it to its last use; the newest version is always in use.
  int versions = 1;
};

struct Plan {
  Schedule schedule;
  std::vector<RankPlan> ranks;
  std::vector<std::vector<int>> holders;  // by chunk: the ranks that have it, ascending

  // Returns the rank that computes the micro-batch's forward through a chunk.
  int rank_of(int micro_batch, int chunk) const {
    return forward_rank[schedule.cell({.micro_batch = micro_batch, .chunk = chunk})];
  }
  std::vector<int> forward_rank;  // by cell: the rank that computes its forward
};

// needs_input() returns true if `entry` needs the result of another chunk. It returns false for the
// first chunk's forward, for the last chunk's backward (which needs only its own forward) and for
// backward_weight. input_of() returns the entry that computes this result: the forward of the
// previous chunk, or the backward of the next chunk. The returned entry has the kind of `entry`:
// backward for backward, even if the table has backward_input there, and vice versa.
bool needs_input(const Schedule& schedule, const Entry& entry);
Entry input_of(const Entry& entry);

// Returns the plan of a schedule. Throws Error(invalid_argument), naming rank and entry, unless
// each micro-batch passes each chunk once in each direction, on one rank. In a forward-only table
// each micro-batch passes each chunk forward once; weights do not change, and a slot is free again
// after its forward.
Plan make_plan(const Schedule& schedule);

}  // namespace tutti::training::pipeline
