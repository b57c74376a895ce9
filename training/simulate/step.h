// Simulates the time of a training step on a network: pipelines and data parallelism in virtual
// time, by the engine that simulates collectives (collectives/simulate).
//
//   stage 0, data 0   F0 F1 .. .. .. B0 .. B1b|B1a             ranks are placed as in
//                       ╲  ╲         ╱     ╱  └─sum b─┴─sum a─   training/parallel/mesh.h:
//   stage 1, data 0      F0 B0 F1 B1b|B1a                        tensor, then data, then stage
//                                  └─sum b─┴─sum a─
//
// Each rank computes its row of the schedule's table, in order. A tensor crosses a stage boundary
// as a message to the rank with the same place in the data axis; messages between two ranks are
// sequential. A chunk's gradients become ready, last layers first, evenly over the time of the last
// micro-batch's backward (or backward_weight), and are divided into buckets. Once a bucket is
// complete and the previous one is summed, the ranks of the stage begin to sum it while they
// continue to compute. The step ends when all computation and messages are complete. All messages
// share the links.
//
// Tensor-parallel ranks share the work of a stage: each block of layers is computed in two halves
// forward and two backward. After each half they sum their activations and wait for the sum
// (Shoeybi et al.: Megatron-LM, 2019). A tensor crosses a stage boundary in as many parts as there
// are tensor-parallel ranks.
//
// With ZeRO the ranks of a stage reduce-scatter their buckets, and gather the parameters of a chunk
// from their shards (parameter_gathers.h), overlapped with earlier computation. In stage 3 a gather
// for an entry starts only when the entry two places before it has ended, so that at most two
// chunks are whole. The optimizer runs after the last sum.
//
// Limits: copies in memory, and the processor time of sums, are ignored. No bucket has gradients of
// two chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/simulate/schedule.h"
#include "collectives/simulate/simulate.h"
#include "topology/domain.h"
#include "topology/networks/network.h"
#include "training/pipeline/plan.h"
#include "training/pipeline/simulate.h"

namespace tutti::training {

// Tensor parallelism: the ranks that share a stage's work, and the algorithms of their collectives.
// With several ranks, all_gather and, depending on `shares_rows`, one of the other algorithms are
// used; unused algorithms may be null.
struct TensorWork {
  int ranks = 1;
  int blocks = 1;  // blocks of layers per chunk
  // True: between blocks each rank has its part of the rows, so that a sum is a reduce_scatter and
  // an all_gather (Korthikanti et al., 2022). False: a sum is an all_reduce.
  bool shares_rows = false;
  const Algorithm* all_reduce = nullptr;
  const Algorithm* reduce_scatter = nullptr;
  const Algorithm* all_gather = nullptr;
};

struct ZeroWork {
  int stage = 0;
  const Algorithm* all_gather =
      nullptr;  // stages 1 to 3: gathers parameters, which have as many bytes as gradients
};

struct StepWork {
  // Computation times of a rank's part, in us. Message times follow from bytes and network.
  pipeline::Costs costs;
  // bytes of a micro-batch's activations between two chunks; their gradient has as many bytes
  double activation_bytes = 0;
  double gradient_bytes = 0;       // bytes of gradients of a rank's part of a chunk
  double bucket_bytes = 25 << 20;  // the last bucket of a chunk may be smaller
  double optimizer_us = 0;         // time of the optimizer per rank
  TensorWork tensor;
  ZeroWork zero;
};

// Returns the groups of ranks that sum their gradients, in a mesh that has `data` x `tensor` ranks
// for each of the plan's ranks. A group has the ranks with one tensor-parallel place of a stage or,
// with Chimera, of the two stages with the same chunks.
std::vector<std::vector<int32_t>> ranks_that_sum(const pipeline::Plan& plan, int data,
                                                 int tensor = 1);

struct StepSchedule {
  Schedule schedule;
  Schedule computing;              // the step without gradient sums and parameter gathers
  std::vector<double> compute_us;  // by stage: computation time, with the optimizer
};

// Returns the schedule of a step of a mesh of `places.size()` ranks, a multiple of the plan's
// ranks. The plan must have passed check(), and its schedule must be flushed. `sum` sums the
// buckets: an all_reduce or, in ZeRO stages 1 to 3, a reduce_scatter. ZeRO requires a schedule in
// which each chunk is on one stage. options.alike: number of ranks per host. If there are no
// tensor-parallel ranks and the ranks of a host are equivalent, they are simulated as one.
// options.most_steps: limit on simulated steps. Throws Error(invalid_argument) for invalid numbers,
// Error(unsupported) if the schedule is too long, or the algorithm does not support the ranks.
StepSchedule make_step_schedule(const pipeline::Plan& plan, const StepWork& work,
                                const std::vector<Place>& places, const Algorithm& sum,
                                const ScheduleOptions& options = {});

// The times of a step: time_us = compute_us + bubble_us + exposed_us.
struct SimulatedStep {
  SimulationResult network;  // its time_us is the step's time
  double compute_us = 0;     // computation time of the stage that computes longest
  // time for which the stage that computes longest waits for other ranks' computation and
  // stragglers
  double bubble_us = 0;
  double exposed_us = 0;        // additional time of messages that do not overlap with computation
  double efficiency = 0;        // compute_us as a fraction of the step's time
  std::vector<double> idle_us;  // by stage: time in which the stage's ranks do not compute
};

// Simulates the step. Throws as simulate() does. Times are infinite if the simulation gives up.
SimulatedStep simulate_step(const StepSchedule& step, Network& network,
                            const SimulationOptions& options);

}  // namespace tutti::training
