// Calls drawn at random, alike on every rank, with their memory and what must be in it afterwards.
//
// Inputs are exact (bench/layout.h), so that every byte has one right value: results, inputs that
// must not change, gaps between blocks and what lies around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/layout.h"
#include "collectives/communicator.h"

namespace tutti::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <typename Values>
  auto pick(const Values& values) {
    return values[below(std::size(values))];
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  bench::Layout layout;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::string algorithm = "auto";
  bool deterministic = false;
  bool in_place = false;
  bool gaps = false;       // between the blocks, which come in any order
  size_t input_shift = 0;  // bytes after an aligned address
  size_t output_shift = 0;
};

// A call among `ranks` ranks: any collective, or a send to the next rank and a receive from the one
// before. Blocks have about `largest` bytes at most.
Case draw_case(Random& random, int ranks, uint64_t largest);
std::string describe(const Case& c);

// Memory with a margin on both sides, and what every byte of it must be after the call.
class Arena {
 public:
  Arena() = default;
  Arena(size_t bytes, size_t shift);
  std::byte* data() { return now_.data() + start_; }
  std::span<std::byte> memory() { return now_; }
  void expect_as_is() { wanted_ = now_; }
  std::byte* wanted() { return wanted_.data() + start_; }
  bool right() const { return now_ == wanted_; }
  // The first byte that is wrong, from data() on.
  int64_t first_wrong() const;

 private:
  size_t start_ = 0;
  std::vector<std::byte> now_;
  std::vector<std::byte> wanted_;
};

// One rank's part in a case, which must outlive it.
class RankCall {
 public:
  RankCall(const Case& c, int rank, uint64_t seed);

  // What the rank calls: one request, or a send and a receive.
  std::vector<Request> requests();
  CallOptions options() const {
    return {.algorithm = case_.algorithm, .deterministic = case_.deterministic};
  }
  // The same call may be made again.
  bool repeatable() const { return !case_.in_place; }
  // All that the call may touch, and its margins.
  std::vector<std::span<std::byte>> memory() { return {first_.memory(), second_.memory()}; }
  // Empty when all memory is as it must be after the call.
  std::string problem() const;

 private:
  std::byte* input();
  std::byte* output();
  void fill();

  const Case& case_;
  int rank_;
  Blocks input_;
  Blocks output_;
  bool shared_ = false;  // input and output are both in the first arena
  Arena first_;
  Arena second_;
};

// By wait(), wait_for() and test(), in an order of its own for each seed.
void wait_for_all(std::vector<Work>& works, uint64_t seed);

}  // namespace tutti::testing
