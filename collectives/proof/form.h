// Checks, without executing the programs of the ranks, that they are well formed and that their
// messages match. Part of verify().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/program/plan.h"
#include "collectives/program/program.h"

namespace tutti {

// Exception that verify() converts to a Verdict.
struct Refusal {
  std::string problem;
};

// Describes a step: "rank 2, step 5 (recv output[0] from 1)". Steps count from 0.
std::string place(const Program& program, int32_t rank, int32_t step);

// Checks that chunk counts and limits are equal on all ranks and fit the collective, and that every
// step's peers and ranges exist, match in number and size class, and respect the limits. Throws
// Refusal.
void check_steps(Collective collective, std::span<const Program> programs, int32_t root);

// Checks that the k-th send of rank a to rank b has as many chunks, of the same sizes, as the k-th
// receive of b from a, and that there are equally many of both. Throws Refusal.
void check_messages(Collective collective, std::span<const Plan> plans);

// Returns true if the rank has this buffer (some exist only at the root).
bool has_space(Collective collective, const Shape& shape, Space space);

// Checks that an algorithm is direct: every step reads only the input and writes only the output.
// Throws Refusal.
void check_direct(std::span<const Program> programs);

}  // namespace tutti
