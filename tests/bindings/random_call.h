// Random calls of a C interface client, correct or with one error.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "bindings/c/tutti.h"

namespace tutti::testing {

inline constexpr uint64_t kMostElements = 3'000;

class Random {
 public:
  explicit Random(uint64_t value) : engine_(value) {}
  uint64_t below(uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n - 1)(engine_); }
  bool once_in(uint64_t n) { return below(n) == 0; }
  template <typename T, size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[below(N)];
  }

 private:
  std::mt19937_64 engine_;
};

enum class Wrong {
  nothing,
  input_count,
  output_count,
  both_counts,
  null_input,
  null_output,
  wrapping_input,
  wrapping_output,
  input_dtype,
  output_dtype,
  op,
  root,
  input_space,
  request_size,
  collective,
  block_count,
  block_place,
  no_blocks,
  options_size,
  timeout,
  algorithm,
};
inline constexpr int kWrongs = static_cast<int>(Wrong::algorithm) + 1;

struct Call {
  tutti_collective_t collective = TUTTI_BARRIER;
  tutti_dtype_t dtype = TUTTI_I32;
  tutti_op_t op = TUTTI_SUM;
  int root = 0;  // send, recv: the message goes from rank `root` to the next rank
  uint64_t count = 0;
  bool in_blocks = false;
  bool out_blocks = false;
  bool uneven = false;
  bool displaced = false;
  int form = 0;
  std::vector<uint64_t>
      lengths;  // block lengths; all_to_all: rank a's block for rank b is at a * p + b
  Wrong wrong = Wrong::nothing;
  int wrong_rank = -1;  // rank that makes the error; -1: all ranks
  uint64_t absurd = 0;
  uint64_t garbage = 0;

  bool reduces() const {
    return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE_SCATTER ||
           collective == TUTTI_REDUCE || collective == TUTTI_SCAN || collective == TUTTI_EXSCAN;
  }
  bool rooted() const {
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
  }
  bool has_input(int rank) const {
    if (collective == TUTTI_BARRIER || collective == TUTTI_RECV) return false;
    if (collective == TUTTI_SEND) return rank == root;
    return rank == root || (collective != TUTTI_BROADCAST && collective != TUTTI_SCATTER);
  }
  bool has_output(int rank, int p) const {
    if (collective == TUTTI_BARRIER) return false;
    if (collective == TUTTI_SEND) return rank == (root + 1) % p;
    return rank == root || (collective != TUTTI_REDUCE && collective != TUTTI_GATHER);
  }
  bool takes_part(int rank, int p) const {
    return collective != TUTTI_SEND || rank == root || rank == (root + 1) % p;
  }
};

inline uint64_t absurd_count(Random& random) {
  constexpr std::array<uint64_t, 9> kAbsurd = {
      UINT64_MAX,       uint64_t{1} << 63, uint64_t{1} << 62,       (uint64_t{1} << 61) + 3,
      UINT64_MAX - 4,   INT64_MAX,         (uint64_t{1} << 48) + 1, uint64_t{1} << 47,
      uint64_t{1} << 60};
  return random.one_of(kAbsurd);
}

inline Call draw(Random& random, int p) {
  Call call;
  call.collective = static_cast<tutti_collective_t>(random.below(12));
  if (call.collective == TUTTI_SEND && p == 1) call.collective = TUTTI_BARRIER;
  constexpr std::array kTypes = {TUTTI_I32, TUTTI_I64, TUTTI_U8, TUTTI_F32, TUTTI_F64};
  constexpr std::array kOps = {TUTTI_SUM, TUTTI_MIN, TUTTI_MAX};
  call.dtype = random.one_of(kTypes);
  call.op = random.one_of(kOps);
  call.root = static_cast<int>(random.below(static_cast<uint64_t>(p)));
  call.count = random.once_in(5) ? random.below(2) : random.below(kMostElements);
  call.in_blocks = call.collective == TUTTI_REDUCE_SCATTER || call.collective == TUTTI_SCATTER ||
                   call.collective == TUTTI_ALL_TO_ALL;
  call.out_blocks = call.collective == TUTTI_ALL_GATHER || call.collective == TUTTI_GATHER ||
                    call.collective == TUTTI_ALL_TO_ALL;
  call.uneven = (call.in_blocks || call.out_blocks) && random.once_in(2);
  call.displaced = random.once_in(2);
  call.form = static_cast<int>(random.below(5));
  const bool pairs = call.collective == TUTTI_ALL_TO_ALL;
  for (int i = 0; i < (pairs ? p * p : p); ++i) {
    call.lengths.push_back(call.uneven ? random.below(call.count + 1) : call.count);
  }
  call.absurd = absurd_count(random);
  call.garbage = random.below(1 << 20);
  return call;
}

}  // namespace tutti::testing
