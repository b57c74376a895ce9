// Messages between workers and parameter servers.
//
//   worker                                   server
//   Push, its gradients of the shard  --->   updates the shard, now or after all workers' pushes
//                                     <---   Answer, with the shard's values if requested
//
// Clocks count from 0 in each stretch of steps. For `ps` and `ssp` a clock is a worker's step. For
// `async` it is the index of a part of the steps' samples. Any worker may take a part: with n
// workers, part p is part p % n of step p / n.
#pragma once

#include <cstdint>

#include "base/buffer.h"

namespace tutti::training {

struct Push {
  int64_t clock = 0;
  int64_t pulls = 0;   // 1 if values are requested
  double factor = 1;   // factor of the gradients, for clipping
  int64_t counts = 1;  // async: 0 if the part had no targets, so that it is not an update
};

struct Answer {
  int64_t version = 0;  // number of updates of the shard so far
  // async: number of updates by which the values that the worker used were stale; ssp: number of
  // clocks by which the values that it will use are stale
  int64_t staleness = 0;
  int64_t next = 0;  // async, in the first server's answers: the part that the worker computes next
};

// Message tags: one for a header, one for the rows that follow it.
inline constexpr int kHeaderTag = 0;
inline constexpr int kRowTag = 1;

template <typename Message>
Buffer bytes_of(Message& message) {
  return {&message, sizeof(Message), DType::u8};
}

}  // namespace tutti::training
