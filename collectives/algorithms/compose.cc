#include "collectives/algorithms/compose.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::algorithms {

namespace {

std::vector<const Step*> sends_to(const Program& program, int32_t peer) {
  std::vector<const Step*> sends;
  for (const Step& step : program.steps) {
    const bool is_one = step.kind == StepKind::send && std::ranges::count(step.peers, peer) > 0;
    if (is_one) sends.push_back(&step);
  }
  return sends;
}

// Returns the wire format of a send. Here the algorithm's input is a partial sum, so chunks of the
// input and of scratch are sent unrounded. Only the output holds complete results, which are sent
// as elements.
Wire wire_of(const Step& send) {
  const bool complete = std::ranges::all_of(
      send.src, [](const ChunkRange& range) { return range.space == Space::output; });
  return complete ? Wire::element : Wire::accumulator;
}

}  // namespace

RangeList Embedding::embed(const RangeList& ranges) const {
  RangeList embedded;
  for (const ChunkRange& range : ranges) {
    const Place& place = range.space == Space::input    ? input
                         : range.space == Space::output ? output
                                                        : scratch;
    const int32_t end = range.first + range.count;
    for (int32_t chunk = range.first; chunk < end;) {
      const int32_t row = chunk / inner_classes;
      const int32_t count = std::min(end, (row + 1) * inner_classes) - chunk;
      const int32_t first = place.first + row * outer_classes + chunk % inner_classes * scale;
      embedded.push_back({place.space, first, count * scale});
      chunk += count;
    }
  }
  return embedded;
}

Step Embedding::embed(Step step) const {
  for (int32_t& peer : step.peers) peer = rank_of(peer);
  for (RangeList* ranges : {&step.src, &step.src2, &step.dst}) *ranges = embed(*ranges);
  return step;
}

int32_t Embedding::scratch_chunks(const Program& inner) const {
  return (inner.scratch_chunks + inner_classes - 1) / inner_classes * outer_classes;
}

void append_embedded(const Program& inner, const Embedding& embedding, std::vector<Step>& steps) {
  for (const Step& step : inner.steps) {
    Step embedded = embedding.embed(step);
    if (step.kind == StepKind::copy && embedded.src == embedded.dst) continue;
    steps.push_back(std::move(embedded));
  }
}

// Returns the program. The wire format of a receive is that of the matching send in the sender's
// program.
Program on_partial_sums(const Algorithm& all_reduce, const Shape& shape) {
  Program program = all_reduce.emit(shape);
  std::map<int32_t, Program> senders;
  std::map<int32_t, size_t> received;  // number of messages, by sender
  for (Step& step : program.steps) {
    if (receives(step.kind)) {
      const int32_t peer = step.peers[0];
      const auto [sender, is_new] = senders.try_emplace(peer);
      if (is_new) {
        Shape other = shape;
        other.rank = peer;
        sender->second = all_reduce.emit(other);
      }
      const auto sent = sends_to(sender->second, shape.rank);
      const size_t number = received[peer]++;
      if (number < sent.size()) step.wire = wire_of(*sent[number]);
    } else if (step.kind == StepKind::send) {
      step.wire = wire_of(step);
    }
  }
  return program;
}

}  // namespace tutti::algorithms
