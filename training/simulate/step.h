// What a training step takes on a network that nobody here owns: pipelines and data parallelism
// played in virtual time, by the engine that plays collectives (collectives/simulate).
//
//   stage 0, data 0   F0 F1 .. .. .. B0 .. B1b|B1a             ranks lie as in
//                       ╲  ╲         ╱     ╱  └─sum b─┴─sum a─   training/parallel/mesh.h:
//   stage 1, data 0      F0 B0 F1 B1b|B1a                        tensor, then data, then stage
//                                  └─sum b─┴─sum a─
//
// Each rank computes its row of the schedule's table, in order. What crosses a boundary is a
// message to the rank with the same place in the data axis, those from one rank to another go one
// after the other. A chunk's gradients are made, the last layers first, evenly over the time of
// the last micro-batch's backward (of its part for weights), and are cut into buckets: when one is
// complete, the ranks of the stage begin to sum it, after the bucket before, while they compute on.
// The step ends when all is done. Messages of all kinds share the links.
//
// Tensor ranks share the work of a stage: each block of layers is computed in two halves forward
// and two backward, after each of which they sum their activations and wait for the sum (Shoeybi et
// al.: Megatron-LM, 2019). A boundary is crossed in as many parts as there are tensor ranks.
//
// By ZeRO the ranks of a stage reduce-scatter their buckets, and gather the parameters of a chunk
// from the parts that each keeps (parameter_gathers.h): while what the rank computes before goes
// on, and by stage 3 not before the entry before the last one is over, so that two chunks are whole
// at most. The optimizer comes after the last sum.
//
// What it leaves out: copies in memory, and what sums take of the processors that compute. A bucket
// ends where its chunk does.
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

// Ranks that share what one would compute, and the algorithms by which they talk. Only those that
// are used need not be null: of several ranks all_gather and, by `shares_rows`, one of the others.
struct TensorWork {
  int ranks = 1;
  int blocks = 1;  // of a chunk
  // Between blocks each has its part of the rows: a sum is a reduce_scatter and an all_gather
  // (Korthikanti et al., 2022), else an all_reduce.
  bool shares_rows = false;
  const Algorithm* all_reduce = nullptr;
  const Algorithm* reduce_scatter = nullptr;
  const Algorithm* all_gather = nullptr;
};

struct ZeroWork {
  int stage = 0;
  const Algorithm* all_gather =
      nullptr;  // from stage 1 on: of parameters, as many bytes as gradients
};

struct StepWork {
  // Of a rank's part, in us; messages take what the network makes of their bytes.
  pipeline::Costs costs;
  double activation_bytes = 0;     // of a micro-batch between two chunks; its gradient has as many
  double gradient_bytes = 0;       // of a rank's part of a chunk
  double bucket_bytes = 25 << 20;  // the last bucket of a chunk may have fewer
  double optimizer_us = 0;         // of a rank
  TensorWork tensor;
  ZeroWork zero;
};

// Ranks that sum their gradients, of a mesh that has `data` x `tensor` ranks of each of the plan's:
// those of a stage or, of Chimera, of the two stages with the same chunks.
std::vector<std::vector<int32_t>> ranks_that_sum(const pipeline::Plan& plan, int data,
                                                 int tensor = 1);

struct StepSchedule {
  Schedule schedule;
  Schedule computing;              // without sums, for which nothing waits that computes
  std::vector<double> compute_us;  // by stage
};

// The step of a mesh of `places.size()` ranks, of which each of the plan's has as many. The plan
// has passed check(), and its schedule is flushed. `sum` sums the buckets: an all_reduce, or from
// ZeRO 1 on a reduce_scatter (of schedules whose stages keep their chunks). options.alike:
// ranks of a host, tried as one (without tensor ranks); most_steps: of all that is done. Throws
// Error(invalid_argument) for numbers that make no sense, Error(unsupported) for what is too long,
// or that the algorithm does not support.
StepSchedule make_step_schedule(const pipeline::Plan& plan, const StepWork& work,
                                const std::vector<Place>& places, const Algorithm& sum,
                                const ScheduleOptions& options = {});

// time_us = compute_us + bubble_us + exposed_us.
struct SimulatedStep {
  SimulationResult network;     // its time_us is the step's
  double compute_us = 0;        // of the stage that computes longest
  double bubble_us = 0;         // what it waits for others to compute, and late ranks
  double exposed_us = 0;        // what messages add to that: communication that nothing hides
  double efficiency = 0;        // the part of the step that stage computes
  std::vector<double> idle_us;  // by stage: what its ranks do not compute
};

// Throws as simulate() does. Infinite where that gives up.
SimulatedStep simulate_step(const StepSchedule& step, Network& network,
                            const SimulationOptions& options);

}  // namespace tutti::training
