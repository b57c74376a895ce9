// Predicts the time of a program: walks all ranks' steps in virtual time (walk.h) with the
// durations of a cost model.
//
//   rank 0  [send c0][.....][recv c1 ]    each rank's steps take its processor one after another,
//                ╲ latency ╱              each as soon as its data is there; if a host has more
//   rank 1  [send c1][.....][recv c0 ]    ranks than cores, its ranks take turns on the cores
//
// A message to another host also queues for this host's outgoing wire and for the other host's
// incoming wire.
//
// Only a few slices are walked. Once the pipeline is full, each further slice takes as long as the
// one before.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/dtype.h"
#include "collectives/cost/cost_model.h"
#include "collectives/program/plan.h"
#include "collectives/program/slicing.h"
#include "topology/domain.h"

namespace tutti {

// The machine that a program runs on.
struct Machine {
  CostModel model;
  Limits limits;
  Hosts hosts;
  bool near_shm = true;            // ranks of one host communicate over shared memory
  PathClass far = PathClass::tcp;  // path between hosts
  // Ranks are blocks of a kernel (gpu_planner.h): each runs its slices in turn, and forwards
  // received data as it arrives if the next step sends that data.
  bool in_kernel = false;
  bool wire_for_each_pair = false;  // one wire per pair of hosts; otherwise one per host
};

struct Prediction {
  double seconds = 0;
  // Times of the busiest rank in seconds. For the rest of `seconds` it waits.
  double messages = 0;  // per-message overhead
  double moving = 0;    // bytes sent, received and copied
  double reducing = 0;
  // `wire`: time in seconds for which the busiest card of a host is busy in its busier direction.
  // `cores`: time in seconds for which the busiest core is busy.
  double wire = 0;
  double cores = 0;
  int32_t host = 0;     // host of the busiest card
  bool enters = false;  // true: the busier direction is the incoming one
  bool rough = false;   // true: computed from one rank's steps, so only `seconds` is known
};

// Predicts the time of a call. `plans[r]` is rank r's plan; `bytes` is the size of one block, or of
// the buffer if the collective has no blocks. If the call takes longer than `give_up` seconds, the
// result may be any time above `give_up`.
Prediction predict(std::span<const Plan> plans, uint64_t bytes, DType dtype, const Machine& machine,
                   double give_up = std::numeric_limits<double>::infinity());
// Returns a lower bound on the time, computed from one rank's own steps. It is much faster to
// compute than predict().
double lower_bound(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine);

// Estimates the time of a program that is too long to walk. The estimate is computed from one
// rank's own steps, on the assumption that all ranks run the same steps and no chunk is empty.
double rough_time(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine);

// Returns the number of slices of a call.
uint32_t slices_of(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine);

}  // namespace tutti
