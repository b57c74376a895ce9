// Hierarchical all-reduce: reduce-scatter inside each host, all-reduce across hosts, all-gather
// inside.
//
//   3 hosts of 2 ranks:      0 ⇄ 1        2 ⇄ 3        4 ⇄ 5      1. reduce-scatter: rank i of each
//                            ■ □          ■ □          ■ □           host has part i of its sum
//                            0 ──────── 2 ──────── 4              2. all-reduce among those with
//                              1 ──────── 3 ──────── 5               the same part
//                            0 ⇄ 1        2 ⇄ 3        4 ⇄ 5      3. all-gather
//
// On a single host, what its ranks share instead is a last-level cache, or a NUMA node. Across
// hosts, each rank moves only its part: 1/g of the buffer for g ranks on a host. The program
// is the three algorithms' programs, one after the other, with their ranks and chunks renumbered;
// chunk by chunk, a phase starts as soon as the one before it is done.
//
// N. T. Karonis et al.: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance. IPDPS 2000. In this form: M. Cho et al.: BlueConnect. SysML 2019.

#include "collectives/algorithms/hierarchical.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/compose.h"

namespace tutti {

namespace {

using algorithms::Embedding;
using algorithms::on_partial_sums;

struct Phases {
  Algorithm reduce_scatter;
  Algorithm all_reduce;
  Algorithm all_gather;

  // Sums go from the first phase to the second one unrounded, in scratch; else in the output.
  bool canonical() const {
    return reduce_scatter.grade == Grade::canonical && all_reduce.grade == Grade::canonical;
  }
};

std::set<int32_t> targets(const Program& program) {
  std::set<int32_t> ranks;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) ranks.insert(step.peers.begin(), step.peers.end());
  }
  return ranks;
}

// Most ranks that one sends to within its host, in the first and the last phase.
int32_t fan_out_inside(const Phases& phases, int32_t group) {
  size_t most = 0;
  for (int32_t rank = 0; rank < group; ++rank) {
    const Shape shape{.ranks = group, .rank = rank};
    std::set<int32_t> ranks = targets(phases.reduce_scatter.emit(shape));
    ranks.merge(targets(phases.all_gather.emit(shape)));
    most = std::max(most, ranks.size());
  }
  return static_cast<int32_t>(most);
}

Program emit(const Phases& phases, const Shape& shape) {
  const int32_t group = shape.group;
  const int32_t position = shape.rank % group;  // in the host
  const int32_t host = shape.rank / group;
  const Shape inside{.ranks = group, .rank = position};
  const Shape across{.ranks = shape.ranks / group, .rank = host};
  const Program scatter = phases.reduce_scatter.emit(inside);
  const Program reduce = phases.canonical() ? on_partial_sums(phases.all_reduce, across)
                                            : phases.all_reduce.emit(across);
  const Program gather = phases.all_gather.emit(inside);

  // A rank's part has so many chunks that each phase's chunks are whole numbers of them.
  const int32_t part =
      std::lcm(std::lcm(scatter.output_chunks, reduce.input_chunks), gather.input_chunks);
  const int32_t chunks = group * part;
  const int32_t mine = position * part;
  Program program{.input_chunks = chunks, .output_chunks = chunks};
  program.fan_out = fan_out_inside(phases, group) + reduce.fan_out;

  const Embedding::Place sum{phases.canonical() ? Space::scratch : Space::output, mine};
  if (phases.canonical()) program.scratch_chunks = chunks;
  const auto append = [&](const Program& inner, Embedding embedding, int32_t scratch_offset) {
    embedding.scratch = {Space::scratch, program.scratch_chunks + scratch_offset};
    embedding.outer_classes = chunks;
    program.scratch_chunks += embedding.scratch_chunks(inner);
    program.chunks_per_message =
        std::max(program.chunks_per_message, inner.chunks_per_message * embedding.scale);
    append_embedded(inner, embedding, program.steps);
  };
  const auto neighbour = [&](int32_t other) { return host * group + other; };
  const auto counterpart = [&](int32_t other) { return other * group + position; };
  append(scatter,
         {.rank_of = neighbour,
          .input = {Space::input, 0},
          .output = sum,
          .scale = part / scatter.output_chunks,
          .inner_classes = scatter.input_chunks},
         0);
  append(reduce,
         {.rank_of = counterpart,
          .input = sum,
          .output = {Space::output, mine},
          .scale = part / reduce.input_chunks,
          .inner_classes = reduce.input_chunks},
         mine);
  append(gather,
         {.rank_of = neighbour,
          .input = {Space::output, mine},
          .output = {Space::output, 0},
          .scale = part / gather.input_chunks,
          .inner_classes = gather.output_chunks},
         0);
  return program;
}

std::string supports(const Phases& phases, const Shape& shape) {
  if (shape.group < 2 || shape.group >= shape.ranks) {
    return "it needs several hosts, or caches or NUMA nodes of one, with several of them in each, "
           "as many "
           "in each";
  }
  if (phases.canonical() && !std::has_single_bit(static_cast<uint32_t>(shape.group))) {
    return "it needs a power of two of them in each group";
  }
  const auto refusal = [](const Algorithm& algorithm, int32_t ranks) {
    const std::string reason = algorithm.supports({.ranks = ranks});
    if (reason.empty()) return reason;
    return cat(name(algorithm.collective), ' ', algorithm.name, " among ", ranks, ": ", reason);
  };
  std::string reason = refusal(phases.reduce_scatter, shape.group);
  if (reason.empty()) reason = refusal(phases.all_reduce, shape.ranks / shape.group);
  if (reason.empty()) reason = refusal(phases.all_gather, shape.group);
  return reason;
}

void require(const Algorithm& algorithm, Collective collective) {
  if (algorithm.collective == collective) return;
  throw Error(ErrorCode::invalid_argument,
              cat("a hierarchical all_reduce has no place for ", name(algorithm.collective), ' ',
                  algorithm.name, " where it needs a ", name(collective)),
              {.remedy = "give a reduce_scatter, an all_reduce and an all_gather algorithm"});
}

}  // namespace

Algorithm compose_hierarchical(const Algorithm& reduce_scatter, const Algorithm& all_reduce,
                               const Algorithm& all_gather) {
  require(reduce_scatter, Collective::reduce_scatter);
  require(all_reduce, Collective::all_reduce);
  require(all_gather, Collective::all_gather);
  const Phases phases{reduce_scatter, all_reduce, all_gather};
  return {
      .collective = Collective::all_reduce,
      .name = cat("hierarchical(", reduce_scatter.name, ',', all_reduce.name, ',', all_gather.name,
                  ')'),
      .source = "hierarchy, Cho et al., BlueConnect, SysML 2019",
      .grade = phases.canonical() ? Grade::canonical : std::min(all_reduce.grade, Grade::same_bits),
      .emit = [phases](const Shape& shape) { return emit(phases, shape); },
      .supports = [phases](const Shape& shape) { return supports(phases, shape); }};
}

const Algorithm* parse_hierarchical(std::string_view text) {
  constexpr std::string_view kStart = "hierarchical(";
  if (!text.starts_with(kStart) || !text.ends_with(')')) return nullptr;
  text.remove_prefix(kStart.size());
  text.remove_suffix(1);
  const std::vector<std::string> parts = split(text, ',');
  if (parts.size() != 3) return nullptr;
  Algorithm composed = compose_hierarchical(require_algorithm(Collective::reduce_scatter, parts[0]),
                                            require_algorithm(Collective::all_reduce, parts[1]),
                                            require_algorithm(Collective::all_gather, parts[2]));
  composed.id = id_of(composed.collective, composed.name);
  return &add_algorithm(std::move(composed));
}

namespace algorithms {

Algorithm all_reduce_hierarchical() {
  Algorithm algorithm =
      compose_hierarchical(reduce_scatter_ring(), all_reduce_halving_doubling(), all_gather_ring());
  algorithm.name = "hierarchical";
  return algorithm;
}

}  // namespace algorithms

}  // namespace tutti
