// The steps of all ranks (program/step_graph.h) and the number of chunks that each step sends, so
// that one schedule serves all sizes.
//
// Ranks that behave alike may be walked as one. Suppose that hosts are alike, and that on each host
// rank i does what rank 0 does with all partners shifted by i. Then the schedule has only rank 0 of
// each host, and each message in it represents one message of every rank of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/step_graph.h"

namespace tutti {

// Defines how the partners of a host's rank i follow from the partners of its rank 0, for n ranks
// per host. A partner with index q in its host becomes the rank of the same host with index (q + i)
// mod n (rotation) or q xor i (exclusive_or). none: the ranks are not alike.
enum class Symmetry : uint8_t { none, rotation, exclusive_or };

// A schedule. It has the plans of the walked ranks 0, alike, 2 * alike, ..., in this order.
struct Schedule : StepGraph {
  int32_t ranks = 0;
  Symmetry symmetry = Symmetry::none;
  int32_t alike = 1;            // number of ranks walked as one (all ranks of a host)
  std::vector<StepKind> kinds;  // by step
  std::vector<int32_t> chunks;  // by step: number of chunks sent, received or computed
  // Only in a joint schedule (joint_schedule.h): the bytes of each step, which replace `chunks`,
  // and the additional processor time of each step.
  std::vector<double> bytes;
  std::vector<double> compute_us;
  int32_t buffer_chunks = 1;  // size in chunks of the larger of the two buffers

  int32_t rank_of(int32_t step) const;
  int64_t messages_in_all() const { return static_cast<int64_t>(messages.size()) * alike; }
  // A walked step represents the same step of every rank of its host. Returns the rank that takes
  // the place of `rank` in the step of the host's rank i.
  int32_t image(int32_t rank, int32_t i) const;
};

// Function that is called occasionally with the fraction done, from 0 to 1.
using Progress = std::function<void(double)>;

struct ScheduleOptions {
  // Limit on the number of steps over all walked ranks.
  int64_t most_steps = 40'000'000;
  // Number of ranks of a host, which are walked as one if they have a symmetry. 1: each rank is
  // walked.
  int32_t alike = 1;
  Progress progress = {};
};

// Makes the schedule of an algorithm. Throws Error(unsupported) if the algorithm does not support
// the shape or is too long, and Error(internal) if messages do not match.
Schedule make_schedule(const Algorithm& algorithm, const Shape& shape,
                       const ScheduleOptions& options = {});

// Returns the number of chunks of the larger of the two buffers.
int32_t buffer_chunks(Collective collective, const Program& program, int32_t ranks);

// Returns the symmetry of the programs; Symmetry::none if the ranks of a host are not alike. All
// ranks of the first, the second, the middle and the last host are compared step by step.
Symmetry find_symmetry(const Algorithm& algorithm, const Shape& shape, int32_t alike);

}  // namespace tutti
