// k-nomial tree all-reduce: reduce to rank 0 on a tree of radix k, and broadcast on the same tree.
//
//   k = 4, p = 16:      0 ←── 1, 2, 3      round 1: groups of 4 ranks reduce to their first rank
//                       4 ←── 5, 6, 7
//                       8 ←── 9, 10, 11
//                      12 ←── 13, 14, 15
//                       0 ←── 4, 8, 12     round 2: groups of 16; then all arrows in reverse
//
// To find a rank's parent, clear its lowest non-zero digit in base 4: 14 = 32 (base 4) → 30 (base
// 4) = 12 → 0.
//
// It takes 2 ceil(log_k p) rounds and 2(p-1) messages, the minimum, so it is cheapest if many ranks
// share few processors. The program is a k-nomial reduce followed by a k-nomial broadcast
// (knomial.cc).
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in
// MPICH. IJHPCA 19(1), 2005.

#include <algorithm>
#include <numeric>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/compose.h"

namespace tutti::algorithms {

namespace {

Program emit_all_reduce_knomial(const Algorithm& reduce, const Algorithm& broadcast,
                                const Shape& shape) {
  const Program up = reduce.emit(shape);
  const Program down = broadcast.emit(shape);
  if (shape.ranks == 1) return up;
  const int32_t chunks = std::lcm(up.input_chunks, down.input_chunks);
  Program program{.input_chunks = chunks,
                  .output_chunks = chunks,
                  // Rank 0 sends only to its children, and no rank has more children.
                  .fan_out = down.fan_out};
  const auto append = [&](const Program& inner, Space from) {
    const Embedding embedding{.rank_of = [](int32_t rank) { return rank; },
                              .input = {from, 0},
                              .output = {Space::output, 0},
                              .scratch = {Space::scratch, program.scratch_chunks},
                              .scale = chunks / inner.input_chunks,
                              .inner_classes = inner.input_chunks,
                              .outer_classes = chunks};
    program.scratch_chunks += embedding.scratch_chunks(inner);
    program.chunks_per_message =
        std::max(program.chunks_per_message, inner.chunks_per_message * embedding.scale);
    append_embedded(inner, embedding, program.steps);
  };
  append(up, Space::input);
  append(down, Space::output);
  return program;
}

}  // namespace

Algorithm all_reduce_knomial(int32_t radix) {
  const Algorithm reduce = reduce_knomial(radix);
  const Algorithm broadcast = broadcast_knomial(radix);
  return {.collective = Collective::all_reduce,
          .name = reduce.name,
          .source = reduce.source,
          .grade = reduce.grade,
          .emit = [=](const Shape& shape) {
            return emit_all_reduce_knomial(reduce, broadcast, shape);
          }};
}

}  // namespace tutti::algorithms
