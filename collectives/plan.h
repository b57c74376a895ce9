// A program made ready to run: its data dependencies, and its steps sorted into queues that can
// move independently of each other. Depends on the program only, so it is cached across calls.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/program.h"

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
  // Bit sets over steps, `words` words each: the steps that step i waits for, and all steps.
  int32_t words = 1;
  std::vector<uint64_t> needs;
  std::vector<uint64_t> all;
  // For each step that sends to several peers, the queues it stands in; empty for the others.
  std::vector<std::vector<int32_t>> send_queues;

  const uint64_t* needs_of(int32_t step) const { return &needs[static_cast<size_t>(step) * words]; }
};

Plan make_plan(Collective collective, const Shape& shape, Program program);

// Chunks of one block: C for all_reduce and the rooted ones, k for all_gather and reduce_scatter.
int32_t chunks_per_block(Collective collective, const Program& program);

}  // namespace tutti
