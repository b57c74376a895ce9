// Programs over layouts. An algorithm's source numbers its ranks consecutively. Here those ranks
// become positions in the layout, and blocks of positions become blocks of the ranks at these
// positions.

#include <algorithm>
#include <utility>

#include "collectives/program/algorithm.h"

namespace tutti {

namespace {

// Returns true if the algorithm's ranks are positions in the layout. Prefix reductions always
// follow the numerical order of the ranks.
bool takes_positions(const Algorithm& algorithm) {
  const Collective collective = algorithm.collective;
  return algorithm.over_positions && collective != Collective::scan &&
         collective != Collective::exscan;
}

// Returns the shape passed to an algorithm, with positions in place of ranks if the algorithm takes
// positions.
Shape shape_for(const Algorithm& algorithm, Shape shape) {
  if (!takes_positions(algorithm)) shape.layout = shape.layout.in_rank_order();
  if (shape.layout.in_order()) return shape;
  shape.rank = shape.layout.position_of(shape.rank);
  if (has_root(algorithm.collective)) shape.root = shape.layout.position_of(shape.root);
  shape.layout = shape.layout.of_positions();
  return shape;
}

class Renumbering {
 public:
  Renumbering(Collective collective, const Program& program, const Shape& shape)
      : layout_(shape.layout),
        ranks_(shape.ranks),
        block_(std::max(1, chunks_per_block(collective, program, ranks_))),
        blocks_{has_input_blocks(collective), has_output_blocks(collective),
                size_classes(collective, program, ranks_) == block_ * ranks_} {}

  void apply(Step& step) const {
    for (int32_t& peer : step.peers) peer = layout_.rank_at(peer);
    for (RangeList* const ranges : {&step.src, &step.src2, &step.dst}) *ranges = apply(*ranges);
  }

 private:
  // Renumbers ranges block by block, so that both ends of a message divide it in the same way.
  RangeList apply(const RangeList& ranges) const {
    RangeList renumbered;
    for (const ChunkRange& range : ranges) {
      if (!blocks_[static_cast<size_t>(range.space)]) {
        renumbered.push_back(range);
        continue;
      }
      const int32_t end = range.first + range.count;
      for (int32_t chunk = range.first; chunk < end;) {
        const int32_t count = std::min(end, (chunk / block_ + 1) * block_) - chunk;
        renumbered.push_back({range.space, apply(chunk), count});
        chunk += count;
      }
    }
    return renumbered;
  }
  // Renumbers a chunk. Scratch may have several rows, each with one chunk per size class.
  int32_t apply(int32_t chunk) const {
    const int32_t position = chunk / block_ % ranks_;
    const int32_t row = chunk / (block_ * ranks_);
    return (row * ranks_ + layout_.rank_at(position)) * block_ + chunk % block_;
  }

  const Layout& layout_;
  const int32_t ranks_;
  const int32_t block_;   // number of chunks per block
  const bool blocks_[3];  // by space: true if it has a block per rank
};

}  // namespace

Program program_of(const Algorithm& algorithm, const Shape& shape, Arithmetic arithmetic) {
  Program program = algorithm.emit(shape_for(algorithm, shape));
  if (!shape.layout.in_order() && takes_positions(algorithm)) {
    const Renumbering renumbering(algorithm.collective, program, shape);
    for (Step& step : program.steps) renumbering.apply(step);
  }
  return with_arithmetic(arithmetic, algorithm.means, algorithm.collective, shape,
                         std::move(program));
}

std::string why_unsupported(const Algorithm& algorithm, const Shape& shape) {
  return algorithm.supports(shape_for(algorithm, shape));
}

Grade grade_of(const Algorithm& algorithm, const Shape& shape) {
  const bool moved = !shape.layout.in_order() && takes_positions(algorithm);
  return moved && reduces(algorithm.collective) ? std::min(algorithm.grade, Grade::same_bits)
                                                : algorithm.grade;
}

}  // namespace tutti
