// Declares calls with random arguments, and their expected results.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {

// All ranks draw the same numbers from `common`, and each rank draws its own numbers from `own`.
struct RandomDraws {
  std::mt19937_64 common;
  std::mt19937_64 own;
  // True: draws integers whose sum or maximum depends on a type's width and sign. MPI libraries
  // themselves compute some of these results wrongly.
  bool wild = false;

  // Returns a number in [0, below).
  static int64_t draw(std::mt19937_64& from, int64_t below) {
    return static_cast<int64_t>(from() % static_cast<uint64_t>(below));
  }
  int64_t draw(int64_t below) { return draw(common, below); }
  bool flip() { return draw(2) == 0; }
  int64_t draw_own(int64_t below) { return draw(own, below); }
};

struct Trial {
  std::string what;
  // Makes the call, non-blocking if there is a request; `large`: the MPI 4 variant with large
  // counts.
  std::function<void(MPI_Request*, bool large)> call;
  std::function<void()> check;
};

// The trial refers to the group, which must outlive it.
Trial random_reduction(const Group& group, RandomDraws& dice);
Trial random_movement(const Group& group, RandomDraws& dice);

}  // namespace tutti::test
