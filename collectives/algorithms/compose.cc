#include "collectives/algorithms/compose.h"

#include <algorithm>
#include <utility>

namespace tutti::algorithms {

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

}  // namespace tutti::algorithms
