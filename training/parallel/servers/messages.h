// What workers and servers tell each other.
//
//   worker                                   server
//   Push, its gradients of the shard  --->   an update of the shard, now or when others are there
//                                     <---   Answer, with the shard's values if they were asked for
//
// Clocks are counted from 0 in each stretch of steps. Of `ps` and `ssp` a clock is a worker's step;
// of `async` it is a part of the steps' samples, which any worker may take: part p of n workers is
// part p % n of step p / n.
#pragma once

#include <cstdint>

#include "base/buffer.h"

namespace tutti::training {

struct Push {
  int64_t clock = 0;
  int64_t pulls = 0;   // 1: the values are asked for
  double factor = 1;   // of the gradients: clipping
  int64_t counts = 1;  // async: 0 where the part had nothing to learn from, and is no update
};

struct Answer {
  int64_t version = 0;    // updates of the shard so far
  int64_t staleness = 0;  // updates, or clocks, that the worker's values were or are behind
  int64_t next = 0;       // async: the part that the worker takes next (of the first server)
};

// Tags of messages: a header, and the rows that follow it.
inline constexpr int kHeaderTag = 0;
inline constexpr int kRowTag = 1;

template <typename Message>
Buffer bytes_of(Message& message) {
  return {&message, sizeof(Message), DType::u8};
}

}  // namespace tutti::training
