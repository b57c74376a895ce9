// What a program will take: all ranks' steps, walked in virtual time (walk.h) with a cost model's
// numbers.
//
//   rank 0  [send c0][.....][recv c1 ]    each rank's steps take its processor one after another,
//                ╲ latency ╱              each as soon as its data is there; ranks beyond a
//   rank 1  [send c1][.....][recv c0 ]    host's cores take turns on them
//
// What goes to another host also takes its turn on the wire there, with all that leaves this host,
// and with all that enters the other one.
//
// Slices are walked a few at a time; once the pipeline runs, each further one takes as long as the
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

// Where the ranks are.
struct Machine {
  CostModel model;
  Limits limits;
  Hosts hosts;
  bool near_shm = true;            // ranks of one host talk over shared memory
  PathClass far = PathClass::tcp;  // all others
  // Ranks are blocks of kernels (gpu_planner.h): each does its slices in turn, and sends on what it
  // receives as it comes, where the next step is to do so.
  bool in_kernel = false;
  bool wire_for_each_pair = false;  // of hosts; else each has one for all
};

struct Prediction {
  double seconds = 0;
  // Of the busiest rank: how its time divides. What is left of `seconds` is waiting.
  double messages = 0;  // handling messages, whatever their size
  double moving = 0;    // bytes sent, received and copied
  double reducing = 0;
  // Of the busiest host: for how long its card is busy with what leaves it or with what enters it,
  // and for how long each of its cores is.
  double wire = 0;
  double cores = 0;
  int32_t host = 0;     // whose card that is
  bool enters = false;  // what enters it
  bool rough = false;   // of one rank's steps: but for `seconds` nothing is known
};

// `plans[r]` is rank r's. `bytes`: of one block (of the buffer, where there are no blocks). What
// takes longer than `give_up` may be said to take any time above it.
Prediction predict(std::span<const Plan> plans, uint64_t bytes, DType dtype, const Machine& machine,
                   double give_up = std::numeric_limits<double>::infinity());
// Never more than that, at a small part of the price: one rank's own steps.
double lower_bound(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine);

// One rank's own steps, as if all others did the like, and every chunk held something: for programs
// too long to walk.
double rough_time(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine);

// Of a call.
uint32_t slices_of(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine);

}  // namespace tutti
