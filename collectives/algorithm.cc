#include "collectives/algorithm.h"

#include <array>
#include <cstddef>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithms/algorithms.h"

namespace tutti {

std::string_view name(Grade grade) {
  constexpr std::string_view kNames[] = {"wrong", "correct", "same bits", "canonical"};
  return kNames[static_cast<size_t>(grade)];
}

// The order is part of the wire format: add at the end.
std::span<const Algorithm> all_algorithms() {
  using namespace algorithms;
  static const std::array kTable = {
      all_reduce_naive(),
      all_reduce_parameter_server(),
      all_reduce_ring(),
      all_reduce_double_binary_tree(),
      all_reduce_recursive_doubling(),
      all_gather_ring(),
      reduce_scatter_ring(),
      broadcast_binomial(),
      reduce_binomial(),
      barrier_dissemination(),
  };
  return kTable;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

const Algorithm& require_algorithm(Collective collective, std::string_view name) {
  if (const Algorithm* algorithm = find_algorithm(collective, name)) return *algorithm;
  std::string known = "auto";
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == collective) known += cat(", ", algorithm.name);
  }
  throw Error(ErrorCode::invalid_argument,
              cat("there is no ", tutti::name(collective), " algorithm named \"", name, '"'),
              {.remedy = cat("take one of ", known)});
}

int algorithm_index(const Algorithm& algorithm) {
  return static_cast<int>(&algorithm - all_algorithms().data());
}

}  // namespace tutti
