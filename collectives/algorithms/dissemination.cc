// Dissemination barrier: ranks exchange tokens over distances that grow with every round. A token
// shows that its sender has entered, and so have all ranks from which the sender received tokens,
// directly or through others.
//
//   k = 2, p = 5, ranks that rank 0 knows of:         0    4 0    2 3 4 0    0 1 2 3 4
//     round 0: r → r + 1                                ──→     ──→        ──→
//     round 1: r → r + 2                              round 0  round 1   round 2
//     round 2: r → r + 4
//
//   k = 4: r → r + 1, r + 2, r + 3, then r + 4, r + 8, r + 12, and so on: half as many rounds
//
// It takes ceil(log_k p) rounds of tokens, which carry no data. A large k is better if one message
// reaches many ranks: up to k ranks synchronise in a single round.
//
// D. Hensgen, R. Finkel, U. Manber: Two Algorithms for Barrier Synchronization. IJPP 17(1), 1988.
// T. Hoefler, T. Mehlan, F. Mietke, W. Rehm: Fast Barrier Synchronization for InfiniBand. IPDPS
// 2006 (n-way dissemination; n = k - 1).

#include <algorithm>
#include <string>

#include "collectives/algorithms/algorithms.h"

namespace tutti::algorithms {

namespace {

Program emit_dissemination(const Shape& shape, int32_t radix) {
  const int32_t p = shape.ranks;
  Program program{.input_chunks = 0, .output_chunks = 0, .fan_out = 0};
  for (int64_t distance = 1; distance < p; distance *= radix) {
    std::vector<int32_t> later;
    std::vector<int32_t> earlier;
    for (int64_t d = distance; d < std::min<int64_t>(p, distance * radix); d += distance) {
      later.push_back(static_cast<int32_t>((shape.rank + d) % p));
      earlier.push_back(static_cast<int32_t>((shape.rank + p - d) % p));
    }
    program.fan_out += static_cast<int32_t>(later.size());
    program.steps.push_back(send(std::move(later), {}));
    for (const int32_t peer : earlier) program.steps.push_back(recv(peer, {}));
  }
  program.fan_out = std::max(1, program.fan_out);
  return program;
}

}  // namespace

Algorithm barrier_dissemination(int32_t radix) {
  return {.collective = Collective::barrier,
          .name = radix == 2 ? "dissemination" : "dissemination_" + std::to_string(radix),
          .source = "Hensgen, Finkel, Manber, IJPP 1988",
          .grade = Grade::canonical,
          .emit = [radix](const Shape& shape) { return emit_dissemination(shape, radix); }};
}

}  // namespace tutti::algorithms
