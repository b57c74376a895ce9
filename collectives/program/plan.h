// A program prepared for execution: its data dependencies, and its steps sorted into queues that
// progress independently. A plan depends only on the program, so it is cached across calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

struct Plan {
  enum class QueueKind : uint8_t { local, send, recv };

  // Steps that start in order: all sends to one peer, all receives from one peer, or all local
  // steps. A send to several peers is in each peer's queue.
  struct Queue {
    QueueKind kind = QueueKind::local;
    int32_t peer = -1;
    std::vector<int32_t> steps;
  };

  Collective collective = Collective::barrier;
  Shape shape;
  Program program;
  std::vector<Queue> queues;
  // Step i waits for the steps needs[first_need[i]] .. needs[first_need[i + 1] - 1].
  std::vector<int32_t> first_need;
  std::vector<int32_t> needs;
  // The dependencies as bit masks, for plans of at most kFew steps. `before[i].finished`: the steps
  // that must have finished before step i begins. `before[i].begun`: the steps directly before step
  // i in its queues, which must have begun. For longer plans `all_steps` is 0 and `before` is
  // empty.
  static constexpr size_t kFew = 64;
  struct Before {
    uint64_t finished = 0;
    uint64_t begun = 0;
  };
  uint64_t all_steps = 0;
  std::vector<Before> before;
  // True if the program terminates without buffering (rendezvous.h), so that all messages may be
  // read in place. Otherwise only the messages of sends that no step needs may be read in place.
  bool without_buffers = false;
  // Indices of the queues of each step that sends to several peers; empty for other steps.
  std::vector<std::vector<int32_t>> send_queues;

  std::span<const int32_t> needs_of(int32_t step) const {
    return {needs.data() + first_need[step], needs.data() + first_need[step + 1]};
  }
};

// Makes a plan. `in_place`: input and output may be the same memory, as the collective defines it;
// otherwise they do not overlap. A plan made for the in-place case is valid for both.
Plan make_plan(Collective collective, const Shape& shape, Program program, bool in_place = true);
// Returns the plans of all ranks for an algorithm that supports the shape; shape.rank is not used.
std::vector<Plan> make_plans(const Algorithm& algorithm, Shape shape,
                             Arithmetic arithmetic = Arithmetic::none, bool in_place = true);

}  // namespace tutti
