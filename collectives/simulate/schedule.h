// The steps of all ranks (program/step_graph.h) and how much each sends, in chunks, so that one
// schedule serves all sizes.
//
// Ranks that do the same at the same time may be walked as one. Where hosts are alike, and on each
// of them rank i does what rank 0 does with all partners shifted by i, a schedule holds rank 0 of
// each host only, and a message of it stands for those of all ranks of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/step_graph.h"

namespace tutti {

// How partners are shifted: to (position + i) mod size, or to position xor i.
enum class Symmetry : uint8_t { none, rotation, exclusive_or };

// Its plans are those of the ranks that are walked: rank 0's, then rank `alike`'s, and so on.
struct Schedule : StepGraph {
  int32_t ranks = 0;
  Symmetry symmetry = Symmetry::none;
  int32_t alike = 1;            // ranks that are walked as one: those of a host
  std::vector<StepKind> kinds;  // by step
  std::vector<int32_t> chunks;  // by step: what it sends, receives or computes
  // Of a schedule that is made of several (joint_schedule.h), by step, and else empty: bytes in
  // place of chunks, and for how long it keeps its rank's processor busy besides.
  std::vector<double> bytes;
  std::vector<double> compute_us;
  int32_t buffer_chunks = 1;  // of the larger of the two buffers

  int32_t rank_of(int32_t step) const;
  int64_t messages_in_all() const { return static_cast<int64_t>(messages.size()) * alike; }
  // The i-th of those that a rank stands for.
  int32_t image(int32_t rank, int32_t i) const;
};

// Called now and then with what part is done, from 0 to 1.
using Progress = std::function<void(double)>;

struct ScheduleOptions {
  // Steps over all ranks; more are refused.
  int64_t most_steps = 40'000'000;
  // Ranks of a host: tried as one. 1: each rank is walked.
  int32_t alike = 1;
  Progress progress = {};
};

// Throws Error(unsupported) for what the algorithm does not support, or is too long;
// Error(internal) where messages do not match.
Schedule make_schedule(const Algorithm& algorithm, const Shape& shape,
                       const ScheduleOptions& options = {});

// Of the larger of the two buffers.
int32_t buffer_chunks(Collective collective, const Program& program, int32_t ranks);

// Which symmetry the programs of these ranks of some hosts have: all of the first, the second, the
// middle and the last hosts are compared, step by step. none: they are not alike.
Symmetry find_symmetry(const Algorithm& algorithm, const Shape& shape, int32_t alike);

}  // namespace tutti
