// Chimera: two pipelines in opposite directions, each with half of the micro-batches. Every chunk
// is on two ranks: chunk c is on rank c for the pipeline that goes down, and on rank p - 1 - c for
// the pipeline that goes up. A rank computes for one pipeline while it would wait in the other.
//
//   rank 0 | F0 .. F1 F2 B2 F3 B3 B0 .. B1      m = p = 4. Down: micro-batches 0 and 1, up: 2, 3
//   rank 1 |    F0 F2 F1 F3 B2 B0 B3 B1
//   rank 2 |    F2 F0 F3 F1 B0 B2 B1 B3         idle: (p - 2) / (2 m + p - 2), if a backward takes
//   rank 3 | F2 .. F3 F0 B0 F1 B1 B2 .. B3      as long as a forward, and m is a multiple of p
//
// A formula gives the slot of each entry in such a picture; the table is the picture read from left
// to right. The two directions never need the same slot: on a rank, forwards down and backwards up
// have slots of one parity, forwards up and backwards down slots of the other. A unit has p
// micro-batches, p / 2 in each direction. The forwards of one direction take every second slot, and
// so do its backwards; the next unit follows 2p slots later without a gap (the paper's direct
// concatenation).
//
// S. Li, T. Hoefler: Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional
// Pipelines. SC 2021. Section 3: bidirectional pipelines, and scaling to more micro-batches.

#include <algorithm>

#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {
namespace {

struct Placed {
  int slot = 0;  // slot in the picture
  Entry entry;
};

// Adds the entries of micro-batches [begin, end) of one direction, on the rank that has `chunk`.
void place(int p, int chunk, int begin, int end, std::vector<Placed>& placed) {
  for (int i = 0; i < end - begin; ++i) {
    const int unit = i / (p / 2);
    // The p / 2 micro-batches of a unit advance 2 * i by p, so unit * p adds the other half of the
    // unit's 2p slots.
    const int slot = chunk + 2 * i + unit * p;
    placed.push_back({slot, {Kind::forward, begin + i, chunk}});
    placed.push_back({slot + 2 * (p - 1 - chunk) + 1, {Kind::backward, begin + i, chunk}});
  }
}

}  // namespace

Schedule chimera(int p, int m) {
  Schedule result{.name = "chimera", .ranks = p, .micro_batches = m, .chunks = p};
  const int half = (m + 1) / 2;
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Placed> placed;
    place(p, rank, 0, half, placed);
    place(p, p - 1 - rank, half, m, placed);
    std::ranges::sort(placed, {}, &Placed::slot);
    std::vector<Entry>& entries = result.table.emplace_back();
    for (const auto& [slot, entry] : placed) entries.push_back(entry);
  }
  return result;
}

}  // namespace tutti::training::pipeline
