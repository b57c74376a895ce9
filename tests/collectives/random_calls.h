// Random calls, which are the same on every rank, with their memory and its expected contents.
//
// Inputs make all results exact (bench/layout.h). Every byte therefore has one right value: in
// results, in inputs that must not change, in gaps between blocks, and in the memory around
// buffers.
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
  bool gaps = false;       // gaps between blocks, which are in random order
  size_t input_shift = 0;  // bytes between an aligned address and the input
  size_t output_shift = 0;
};

// Draws a call on `ranks` ranks: any collective, or a send to the next rank together with a receive
// from the previous one. A block has at most about `largest` bytes.
Case draw_case(Random& random, int ranks, uint64_t largest);
std::string describe(const Case& c);

// Memory with a margin on both sides, and the value that each byte must have after the call.
class Arena {
 public:
  Arena() = default;
  Arena(size_t bytes, size_t shift);
  std::byte* data() { return now_.data() + start_; }
  std::span<std::byte> memory() { return now_; }
  void expect_as_is() { wanted_ = now_; }
  std::byte* wanted() { return wanted_.data() + start_; }
  bool right() const { return now_ == wanted_; }
  // Returns the offset of the first wrong byte, counted from data().
  int64_t first_wrong() const;

 private:
  size_t start_ = 0;
  std::vector<std::byte> now_;
  std::vector<std::byte> wanted_;
};

// The call of one rank. `c` must outlive it.
class RankCall {
 public:
  RankCall(const Case& c, int rank, uint64_t seed);

  // Returns the rank's requests: one, or a send and a receive.
  std::vector<Request> requests();
  CallOptions options() const {
    return {.algorithm = case_.algorithm, .deterministic = case_.deterministic};
  }
  // Returns true if the call may be repeated.
  bool repeatable() const { return !case_.in_place; }
  // Returns all memory that the call may access, with its margins.
  std::vector<std::span<std::byte>> memory() { return {first_.memory(), second_.memory()}; }
  // Returns a description of the first wrong byte after the call, or "".
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

// Completes all calls by wait(), wait_for() and test(), in a random order given by the seed.
void wait_for_all(std::vector<Work>& works, uint64_t seed);

}  // namespace tutti::testing
