// The part of verify that needs no running: whether programs are well formed and fit each other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/program/plan.h"
#include "collectives/program/program.h"

namespace tutti {

// Thrown within verify; verify turns it into a verdict.
struct Refusal {
  std::string problem;
};

// "rank 2, step 5 (recv output[0] from 1)"; steps count from 0.
std::string place(const Program& program, int32_t rank, int32_t step);

// Chunk counts and limits are equal on all ranks and fit the collective; every step's peers and
// ranges exist, fit each other and keep to the limits. Throws Refusal.
void check_steps(Collective collective, std::span<const Program> programs, int32_t root);

// The k-th send of rank a to rank b has as many chunks, of the same sizes, as the k-th receive of b
// from a, and there are as many of one as of the other. Throws Refusal.
void check_messages(Collective collective, std::span<const Plan> plans);

// Whether the rank has a buffer there: some exist at the root only.
bool has_space(Collective collective, const Shape& shape, Space space);

// Programs of a direct algorithm send from input, receive into output, and nothing else. Throws
// Refusal.
void check_direct(std::span<const Program> programs);

}  // namespace tutti
