// Hand-written plans and times, for tests of their presentation.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "training/pipeline/plan.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline::testing {

struct Shown {
  Plan plan;
  Timeline timeline;
};

inline Shown shown(Schedule schedule, std::vector<std::vector<int>> ways,
                   std::vector<std::vector<int>> chunks, std::vector<Span> spans) {
  Shown result;
  for (const std::vector<int>& way : ways) {
    result.plan.forward_rank.insert(result.plan.forward_rank.end(), way.begin(), way.end());
  }
  for (const std::vector<int>& held : chunks) {
    result.plan.ranks.push_back({.actions = {}, .chunks = held});
  }
  for (const Span& span : spans) {
    result.plan.ranks[static_cast<size_t>(span.rank)].actions.push_back({.entry = span.entry});
    result.timeline.makespan = std::max(result.timeline.makespan, span.end);
  }
  result.plan.schedule = std::move(schedule);
  result.timeline.spans = std::move(spans);
  return result;
}

// 1F1B on two ranks with two micro-batches; a backward pass takes twice as long as a forward pass:
//
//   rank 0  F0 F1 .  .  B0--- .  B1---
//   rank 1  .  F0 B0--- F1 B1--- .  .
inline Shown two_ranks() {
  using enum Kind;
  return shown({.name = "1f1b", .ranks = 2, .micro_batches = 2, .chunks = 2, .table = {}},
               {{0, 1}, {0, 1}}, {{0}, {1}},
               {{0, {forward, 0, 0}, 0, 1},
                {0, {forward, 1, 0}, 1, 2},
                {0, {backward, 0, 0}, 4, 6},
                {0, {backward, 1, 0}, 7, 9},
                {1, {forward, 0, 1}, 1, 2},
                {1, {backward, 0, 1}, 2, 4},
                {1, {forward, 1, 1}, 4, 5},
                {1, {backward, 1, 1}, 5, 7}});
}

// Chimera on two ranks, each of which has both chunks: micro-batch 0 goes from rank 0 to rank 1,
// and micro-batch 1 from rank 1 to rank 0. Forward and backward passes take equally long.
//
//   rank 0  F0 F1 B1 B0
//   rank 1  F1 F0 B0 B1
inline Shown two_ways() {
  using enum Kind;
  return shown({.name = "chimera", .ranks = 2, .micro_batches = 2, .chunks = 2, .table = {}},
               {{0, 1}, {1, 0}}, {{0, 1}, {0, 1}},
               {{0, {forward, 0, 0}, 0, 1},
                {0, {forward, 1, 1}, 1, 2},
                {0, {backward, 1, 1}, 2, 3},
                {0, {backward, 0, 0}, 3, 4},
                {1, {forward, 1, 0}, 0, 1},
                {1, {forward, 0, 1}, 1, 2},
                {1, {backward, 0, 1}, 2, 3},
                {1, {backward, 1, 0}, 3, 4}});
}

// One rank with two chunks. Each backward pass is split into backward_input (I) and backward_weight
// (W).
//
//   rank 0  F0.0 F0.1 I0.1 W0.1 I0.0 W0.0
inline Shown two_chunks() {
  using enum Kind;
  return shown({.name = "split", .ranks = 1, .micro_batches = 1, .chunks = 2, .table = {}},
               {{0, 0}}, {{0, 1}},
               {{0, {forward, 0, 0}, 0, 1},
                {0, {forward, 0, 1}, 1, 2},
                {0, {backward_input, 0, 1}, 2, 3},
                {0, {backward_weight, 0, 1}, 3, 4},
                {0, {backward_input, 0, 0}, 4, 5},
                {0, {backward_weight, 0, 0}, 5, 6}});
}

}  // namespace tutti::training::pipeline::testing
