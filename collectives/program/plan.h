// A program made ready to run: its data dependencies, and its steps sorted into queues that can
// move independently of each other. Depends on the program only, so it is cached across calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

struct Plan {
  enum class QueueKind : uint8_t { local, send, recv };

  // Steps that must start in order: all sends to one peer, all receives from one peer, or all steps
  // without communication. A send to several peers stands in the queue of each.
  struct Queue {
    QueueKind kind = QueueKind::local;
    int32_t peer = -1;
    std::vector<int32_t> steps;
  };

  Collective collective = Collective::barrier;
  Shape shape;
  Program program;
  std::vector<Queue> queues;
  // The steps that step i waits for: needs[first_need[i]] to needs[first_need[i + 1] - 1].
  std::vector<int32_t> first_need;
  std::vector<int32_t> needs;
  // The same for plans of few steps, with a bit for each step: all of them, and by step those that
  // must be finished before it begins, and those that must have begun, which stand before it in its
  // queues. 0 and empty for plans of more steps.
  static constexpr size_t kFew = 64;
  struct Before {
    uint64_t finished = 0;
    uint64_t begun = 0;
  };
  uint64_t all_steps = 0;
  std::vector<Before> before;
  // No rank needs what it sends to be copied aside (rendezvous.h). Else only what no step waits for
  // may be read in place.
  bool without_buffers = false;
  // For each step that sends to several peers, the queues it stands in; empty for the others.
  std::vector<std::vector<int32_t>> send_queues;

  std::span<const int32_t> needs_of(int32_t step) const {
    return {needs.data() + first_need[step], needs.data() + first_need[step + 1]};
  }
};

// `in_place`: the call's input and output may be the same memory, as the collective says; else they
// are apart. What is planned for the first is right for both.
Plan make_plan(Collective collective, const Shape& shape, Program program, bool in_place = true);
// Those of all ranks, by an algorithm that supports the shape; shape.rank does not matter.
std::vector<Plan> make_plans(const Algorithm& algorithm, Shape shape,
                             Arithmetic arithmetic = Arithmetic::none, bool in_place = true);

}  // namespace tutti
