// One call with random arguments, and what must come of it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {

// All ranks draw the same numbers from `common`, each its own from `own`.
struct Dice {
  std::mt19937_64 common;
  std::mt19937_64 own;
  // Integers of which the sum or the largest shows whether a type's width and sign are known. MPI
  // libraries are wrong about some of these themselves.
  bool wild = false;

  // From 0 to below.
  static int64_t draw(std::mt19937_64& from, int64_t below) {
    return static_cast<int64_t>(from() % static_cast<uint64_t>(below));
  }
  int64_t draw(int64_t below) { return draw(common, below); }
  bool flip() { return draw(2) == 0; }
  int64_t draw_own(int64_t below) { return draw(own, below); }
};

struct Trial {
  std::string what;
  // Makes the call: with a request, the one that does not block; `large`, the one of MPI 4.
  std::function<void(MPI_Request*, bool large)> call;
  std::function<void()> check;
};

// The trial keeps the group by reference.
Trial random_reduction(const Group& group, Dice& dice);
Trial random_movement(const Group& group, Dice& dice);

}  // namespace tutti::test
