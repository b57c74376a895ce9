#include "collectives/algorithms/over_rings.h"

#include <algorithm>
#include <set>
#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/compose.h"

namespace tutti::algorithms {

namespace {

using OneRing = std::vector<int32_t>;

// Returns the largest number of ranks that a rank sends to.
int32_t fan_out_of(const std::vector<OneRing>& rings) {
  std::vector<std::set<int32_t>> next(rings.front().size());
  for (const OneRing& ring : rings) {
    for (size_t at = 0; at < ring.size(); ++at) {
      next[static_cast<size_t>(ring[at])].insert(ring[(at + 1) % ring.size()]);
    }
  }
  size_t most = 1;
  for (const std::set<int32_t>& ranks : next) most = std::max(most, ranks.size());
  return static_cast<int32_t>(most);
}

}  // namespace

Program all_reduce_over_rings(const std::vector<OneRing>& rings, int32_t rank) {
  const auto p = static_cast<int32_t>(rings.front().size());
  const auto chunks = static_cast<int32_t>(rings.size()) * p;
  Program program{.input_chunks = chunks, .output_chunks = chunks, .fan_out = fan_out_of(rings)};
  if (p == 1) {
    program.steps = {copy({input(0, chunks)}, {output(0, chunks)})};
    return program;
  }
  const Algorithm ring = all_reduce_ring();
  std::vector<Embedding> embeddings;
  std::vector<Program> programs;
  for (const OneRing& order : rings) {
    const auto first = static_cast<int32_t>(embeddings.size()) * p;
    const auto position = static_cast<int32_t>(std::ranges::find(order, rank) - order.begin());
    embeddings.push_back({.rank_of = [order](int32_t at) { return order[static_cast<size_t>(at)]; },
                          .input = {Space::input, first},
                          .output = {Space::output, first},
                          .scratch = {Space::scratch, first},
                          .inner_classes = p,
                          .outer_classes = chunks});
    programs.push_back(ring.emit({.ranks = p, .rank = position}));
  }
  program.scratch_chunks = embeddings.front().scratch_chunks(programs.front());
  // The programs have equally many steps.
  for (size_t step = 0; step < programs.front().steps.size(); ++step) {
    for (size_t ring_number = 0; ring_number < programs.size(); ++ring_number) {
      const Program& one = programs[ring_number];
      program.steps.push_back(embeddings[ring_number].embed(one.steps[step]));
    }
  }
  return program;
}

}  // namespace tutti::algorithms
