// Schedule tables for tests of plans and simulations. They do not use the generators of schedules,
// so that errors of the generators cannot hide.
#pragma once

#include <algorithm>

#include "training/pipeline/schedule.h"

namespace tutti::training::pipeline::testing {

inline Schedule empty_table(const char* name, int p, int m, int chunks) {
  Schedule schedule{.name = name, .ranks = p, .micro_batches = m, .chunks = chunks};
  schedule.table.resize(static_cast<size_t>(p));
  return schedule;
}

// All forwards, then all backwards.
inline Schedule gpipe_table(int p, int m) {
  Schedule schedule = empty_table("gpipe", p, m, p);
  for (int rank = 0; rank < p; ++rank) {
    auto& entries = schedule.table[static_cast<size_t>(rank)];
    for (int i = 0; i < m; ++i) entries.push_back({Kind::forward, i, rank});
    for (int i = 0; i < m; ++i) entries.push_back({Kind::backward, i, rank});
  }
  return schedule;
}

// p - 1 - rank forwards, then alternately one forward and one backward, then the remaining
// backwards. `split`: each backward is a backward_input, directly followed by a backward_weight.
inline Schedule one_f_one_b_table(int p, int m, bool split = false) {
  Schedule schedule = empty_table("1f1b", p, m, p);
  for (int rank = 0; rank < p; ++rank) {
    auto& entries = schedule.table[static_cast<size_t>(rank)];
    const auto backward = [&](int i) {
      entries.push_back({split ? Kind::backward_input : Kind::backward, i, rank});
      if (split) entries.push_back({Kind::backward_weight, i, rank});
    };
    const int ahead = std::min(m, p - 1 - rank);
    for (int i = 0; i < ahead; ++i) entries.push_back({Kind::forward, i, rank});
    for (int i = ahead; i < m; ++i) {
      entries.push_back({Kind::forward, i, rank});
      backward(i - ahead);
    }
    for (int i = m - ahead; i < m; ++i) backward(i);
  }
  return schedule;
}

// 1F1B that updates weights between flushes.
inline Schedule asynchronous_table(Updates updates, int p, int m, int accumulated) {
  Schedule schedule = one_f_one_b_table(p, m);
  schedule.updates = updates;
  schedule.accumulated = accumulated;
  return schedule;
}

// GPipe on two ranks, rank 0 with chunks 0 and 2, rank 1 with chunks 1 and 3. Each rank runs all
// micro-batches of one chunk, then those of the other.
inline Schedule looped_table(int m) {
  Schedule schedule = empty_table("looped", 2, m, 4);
  for (int rank = 0; rank < 2; ++rank) {
    auto& entries = schedule.table[static_cast<size_t>(rank)];
    for (const int chunk : {rank, rank + 2}) {
      for (int i = 0; i < m; ++i) entries.push_back({Kind::forward, i, chunk});
    }
    for (const int chunk : {rank + 2, rank}) {
      for (int i = 0; i < m; ++i) entries.push_back({Kind::backward, i, chunk});
    }
  }
  return schedule;
}

// Both ranks have both chunks: even micro-batches go from rank 0 to rank 1, odd ones from 1 to 0.
inline Schedule two_way_table() {
  Schedule schedule = empty_table("two-way", 2, 2, 2);
  using enum Kind;
  schedule.table[0] = {{forward, 0, 0}, {forward, 1, 1}, {backward, 1, 1}, {backward, 0, 0}};
  schedule.table[1] = {{forward, 1, 0}, {forward, 0, 1}, {backward, 0, 1}, {backward, 1, 0}};
  return schedule;
}

}  // namespace tutti::training::pipeline::testing
