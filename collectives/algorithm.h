// The catalogue: every algorithm, by collective and name. One algorithm, one file in algorithms/.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/program.h"

namespace tutti {

struct Algorithm {
  Collective collective;
  std::string_view name;    // "ring"
  std::string_view source;  // the paper it comes from
  // Empty when it runs on so many ranks, else why not.
  std::string (*supports)(int32_t ranks);
  Program (*emit)(const Shape& shape);
};

std::span<const Algorithm> all_algorithms();

// Null if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// Throws Error(invalid_argument) that lists the names there are; its position in all_algorithms() is
// part of the wire format.
const Algorithm& require_algorithm(Collective collective, std::string_view name);
int algorithm_index(const Algorithm& algorithm);

}  // namespace tutti
