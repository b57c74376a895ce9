// Memory for activations and temporaries: one reserved range of addresses that is filled from its
// start and emptied from its end.
//
//   |input|...saved by layer 0...|...saved by layer 1...|temporaries|        reserved, untouched |
//                                                                    ^ used          ^ high_water
//
// Nothing moves and nothing fragments: what a training step leaves behind is the same range for the
// next one ("contiguous memory", Rajbhandari et al., ZeRO, 2020, section 6.3). Pages are the
// kernel's until they are first touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "training/tensor.h"

namespace tutti::training {

// Of this machine, in bytes: no arena can hold more.
size_t physical_memory();

class Arena {
 public:
  // Reserves `bytes` of addresses, not of memory. Throws Error(system) where even that is refused.
  explicit Arena(size_t bytes = physical_memory());
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The values are unspecified; rows are contiguous; the start is aligned to a cache line. Throws
  // Error(invalid_argument) when the range is full.
  Tensor take(DType dtype, int64_t rows, int64_t cols);

  size_t mark() const { return used_; }
  // Everything that was taken since `mark` is given back.
  void release(size_t mark) { used_ = mark; }

  // The most bytes that were in use at once.
  size_t high_water() const { return high_water_; }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

// Gives back at the end of a scope what was taken in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace tutti::training
