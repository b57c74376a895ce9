// The catalogue: every algorithm, by collective and name. One algorithm, one file in algorithms/.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/program.h"

namespace tutti {

// What verify can prove of a program. Each grade includes the ones before it.
enum class Grade : uint8_t {
  wrong,
  correct,    // every input is counted exactly once in every output
  same_bits,  // and all ranks build each result by the same expression tree
  canonical,  // and that tree is the canonical one: balanced over ranks in aligned power-of-two
              // groups, lower rank on the left (for p = 5: ((0 1) (2 3)) 4)
};
std::string_view name(Grade grade);

// What a call costs its busiest rank, for the planner. Volumes are in multiples of the call's bytes
// per rank (one block, for all_gather and reduce_scatter).
struct Cost {
  double messages = 0;  // that follow each other, or that one rank takes one by one
  double moved = 0;     // bytes sent or received, whichever is more
  double reduced = 0;   // bytes of result computed
};

inline std::string any_ranks(int32_t) { return {}; }

struct Algorithm {
  Collective collective;
  std::string_view name;    // "ring"
  std::string_view source;  // the paper it comes from
  Grade grade;              // what it has for every number of ranks and every root
  Cost (*cost)(int32_t ranks);
  Program (*emit)(const Shape& shape);
  // Empty when it runs on so many ranks, else why not.
  std::string (*supports)(int32_t ranks) = any_ranks;
};

std::span<const Algorithm> all_algorithms();

// Null if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// Throws Error(invalid_argument) that lists the names there are; its position in all_algorithms()
// is part of the wire format.
const Algorithm& require_algorithm(Collective collective, std::string_view name);
int algorithm_index(const Algorithm& algorithm);

}  // namespace tutti
