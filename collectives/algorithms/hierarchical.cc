// Hierarchical all-reduce: reduce-scatter inside each host, all-reduce across hosts, all-gather
// inside.
//
//   3 hosts of 2 ranks:      0 ⇄ 1        2 ⇄ 3        4 ⇄ 5      1. reduce-scatter: rank i of each
//                            ■ □          ■ □          ■ □           host gets part i of its sum
//                            0 ──────── 2 ──────── 4              2. all-reduce among ranks with
//                              1 ──────── 3 ──────── 5               the same part
//                            0 ⇄ 1        2 ⇄ 3        4 ⇄ 5      3. all-gather
//
// If hosts have unequal numbers of ranks, only as many ranks of each host participate as the
// smallest host has. Each other rank first sends its input to a participating rank, and at the end
// receives the result from that rank.
//
//   hosts of 2 and 3:        0 ⇄ 1        2 ⇄ 3
//                                         4 ⇡⇣
//
// On a single host, the groups are NUMA nodes or last-level caches instead of hosts. If the phase
// across groups is itself hierarchical, this composition's groups are one level further inside.
// Across hosts each rank moves only its part: 1/g of the buffer for g ranks per host. The program
// concatenates the three algorithms' programs, with renumbered ranks and chunks. A phase starts on
// a chunk as soon as the previous phase has finished that chunk.
//
// N. T. Karonis et al.: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance. IPDPS 2000. In this form: M. Cho et al.: BlueConnect. SysML 2019.

#include "collectives/algorithms/hierarchical.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
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

  // Returns true if the composition is canonical. Sums then pass from the first to the second phase
  // unrounded, in scratch; otherwise they pass in the output.
  bool canonical() const {
    return reduce_scatter.grade == Grade::canonical && all_reduce.grade == Grade::canonical;
  }
  // Returns the layout level whose groups are called hosts here; outer levels belong to the second
  // phase.
  int32_t level() const { return all_reduce.levels; }
};

// Position of a rank in its host.
struct Spot {
  Spot(const Layout& layout, int32_t level, int32_t rank)
      : host(layout.group_of(level, rank)),
        first(layout.first(level, host)),
        size(layout.size(level, host)),
        columns(layout.smallest(level)),
        position(rank - first) {}

  int32_t host;
  int32_t first;    // first rank of the host
  int32_t size;     // number of ranks of the host
  int32_t columns;  // number of participating ranks per host
  int32_t position;

  bool takes_part() const { return position < columns; }
  // Returns the rank that receives the input of a rank that does not participate.
  int32_t helper() const { return first + position % columns; }
  // Returns the ranks that send their input to this rank, which participates.
  std::vector<int32_t> helped() const {
    std::vector<int32_t> ranks;
    for (int32_t i = position + columns; i < size; i += columns) ranks.push_back(first + i);
    return ranks;
  }
};

std::set<int32_t> targets(const Program& program) {
  std::set<int32_t> ranks;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::send) ranks.insert(step.peers.begin(), step.peers.end());
  }
  return ranks;
}

// Returns the largest number of ranks that a rank sends to within its host, in the first and the
// last phase. Each thread caches its last result, because the programs of all ranks contain it.
int32_t fan_out_inside(const Phases& phases, int32_t columns) {
  using Question = std::tuple<std::string, std::string, int32_t>;
  thread_local std::pair<Question, int32_t> last;
  const Question asked(phases.reduce_scatter.name, phases.all_gather.name, columns);
  if (last.first == asked) return last.second;
  size_t most = 0;
  for (int32_t rank = 0; rank < columns; ++rank) {
    const Shape shape{.ranks = columns, .rank = rank};
    std::set<int32_t> ranks = targets(phases.reduce_scatter.emit(shape));
    ranks.merge(targets(phases.all_gather.emit(shape)));
    most = std::max(most, ranks.size());
  }
  last = {asked, static_cast<int32_t>(most)};
  return last.second;
}

// Composes one rank's program. Its limits are equal on all ranks, including those that do not
// participate.
class Composer {
 public:
  Composer(const Phases& phases, const Shape& shape)
      : layout_(shape.layout),
        level_(phases.level()),
        canonical_(phases.canonical()),
        spot_(layout_, level_, shape.rank),
        most_helped_((layout_.largest(level_) - 1) / spot_.columns) {
    const int32_t position = spot_.position % spot_.columns;
    const Shape inside{.ranks = spot_.columns, .rank = position};
    const Shape across{
        .ranks = layout_.groups(level_), .rank = spot_.host, .layout = layout_.outside(level_)};
    scatter_ = phases.reduce_scatter.emit(inside);
    reduce_ =
        canonical_ ? on_partial_sums(phases.all_reduce, across) : phases.all_reduce.emit(across);
    gather_ = phases.all_gather.emit(inside);
    // The number of chunks in a rank's part is a multiple of each phase's number of chunks per
    // part.
    part_ = std::lcm(std::lcm(scatter_.output_chunks, reduce_.input_chunks), gather_.input_chunks);
    mine_ = position * part_;
    program_.input_chunks = program_.output_chunks = spot_.columns * part_;
    program_.fan_out = fan_out_inside(phases, spot_.columns) + reduce_.fan_out + most_helped_;
    if (most_helped_ > 0) program_.chunks_per_message = part_;
  }

  Program compose() {
    const Embedding::Place sums{.space = Space::scratch, .first = take_scratch(most_helped_ > 0)};
    const std::vector<int32_t> helped = spot_.helped();
    if (!spot_.takes_part()) give_input();
    if (spot_.takes_part()) take_inputs(helped, sums.first);
    run_phases(helped.empty() ? Embedding::Place{Space::input, 0} : sums);
    if (!spot_.takes_part()) take_result();
    if (spot_.takes_part() && !helped.empty()) give_result(helped);
    return std::move(program_);
  }

 private:
  // Allocates `times` scratch chunks of each size class; returns the first one.
  int32_t take_scratch(int32_t times) {
    const int32_t first = program_.scratch_chunks;
    program_.scratch_chunks += times * program_.input_chunks;
    return first;
  }

  template <typename Add>
  void each_part(const Add& add) {
    for (int32_t i = 0; i < spot_.columns; ++i) program_.steps.push_back(add(i * part_));
  }
  void give_input() {
    each_part([&](int32_t i) { return send({spot_.helper()}, {input(i, part_)}); });
  }
  void take_inputs(const std::vector<int32_t>& helped, int32_t sums) {
    for (const int32_t rank : helped) {
      each_part([&](int32_t i) {
        const ChunkRange sum = scratch(sums + i, part_);
        const ChunkRange so_far = rank == helped[0] ? input(i, part_) : sum;
        return recv_reduce_right(rank, {so_far}, {sum});
      });
    }
  }
  void give_result(const std::vector<int32_t>& helped) {
    each_part([&](int32_t i) { return send(helped, {output(i, part_)}); });
  }
  void take_result() {
    each_part([&](int32_t i) { return recv(spot_.helper(), {output(i, part_)}); });
  }

  void run_phases(Embedding::Place inputs) {
    Embedding::Place sum{.space = Space::output, .first = mine_};
    if (canonical_) sum = {.space = Space::scratch, .first = take_scratch(1) + mine_};
    const auto neighbour = [this](int32_t other) { return spot_.first + other; };
    const auto counterpart = [this](int32_t host) {
      return layout_.first(level_, host) + spot_.position;
    };
    append(scatter_,
           {.rank_of = neighbour,
            .input = inputs,
            .output = sum,
            .scale = part_ / scatter_.output_chunks,
            .inner_classes = scatter_.input_chunks},
           0);
    append(reduce_,
           {.rank_of = counterpart,
            .input = sum,
            .output = {Space::output, mine_},
            .scale = part_ / reduce_.input_chunks,
            .inner_classes = reduce_.input_chunks},
           mine_);
    append(gather_,
           {.rank_of = neighbour,
            .input = {Space::output, mine_},
            .output = {Space::output, 0},
            .scale = part_ / gather_.input_chunks,
            .inner_classes = gather_.output_chunks},
           0);
  }

  void append(const Program& inner, Embedding embedding, int32_t scratch_offset) {
    embedding.scratch = {Space::scratch, program_.scratch_chunks + scratch_offset};
    embedding.outer_classes = program_.input_chunks;
    program_.scratch_chunks += embedding.scratch_chunks(inner);
    program_.chunks_per_message =
        std::max(program_.chunks_per_message, inner.chunks_per_message * embedding.scale);
    if (spot_.takes_part()) append_embedded(inner, embedding, program_.steps);
  }

  const Layout layout_;
  const int32_t level_;
  const bool canonical_;
  const Spot spot_;
  const int32_t most_helped_;  // largest number of ranks in helped(), over all ranks
  Program scatter_;
  Program reduce_;
  Program gather_;
  int32_t part_ = 1;  // chunks of a rank's part
  int32_t mine_ = 0;  // first chunk of this rank's part
  Program program_;
};

std::string supports(const Phases& phases, const Shape& shape) {
  const int32_t level = phases.level();
  if (shape.layout.levels() <= level) {
    return cat(
        "it requires ", level == 0 ? "" : cat(level + 1, " levels of "),
        "several hosts (or caches or NUMA nodes of one host), at least one with several ranks");
  }
  const int32_t columns = shape.layout.smallest(level);
  if (phases.canonical() && !shape.layout.even(level)) {
    return "it requires groups of equal size";
  }
  if (phases.canonical() && !std::has_single_bit(static_cast<uint32_t>(columns))) {
    return "it requires a power-of-two number of ranks in each group";
  }
  const auto refusal = [](const Algorithm& algorithm, const Shape& inner) {
    const std::string reason = algorithm.supports(inner);
    if (reason.empty()) return reason;
    return cat(name(algorithm.collective), ' ', algorithm.name, " among ", inner.ranks, ": ",
               reason);
  };
  const Shape inside{.ranks = columns};
  std::string reason = refusal(phases.reduce_scatter, inside);
  if (reason.empty()) {
    reason = refusal(phases.all_reduce,
                     {.ranks = shape.layout.groups(level), .layout = shape.layout.outside(level)});
  }
  if (reason.empty()) reason = refusal(phases.all_gather, inside);
  return reason;
}

void require(const Algorithm& algorithm, Collective collective) {
  if (algorithm.collective == collective) return;
  throw Error(ErrorCode::invalid_argument,
              cat("a hierarchical all_reduce cannot use ", name(algorithm.collective), ' ',
                  algorithm.name, " as its ", name(collective)),
              {.remedy = "use a reduce_scatter, an all_reduce and an all_gather algorithm"});
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
      .levels = phases.level() + 1,
      .emit = [phases](const Shape& shape) { return Composer(phases, shape).compose(); },
      .supports = [phases](const Shape& shape) { return supports(phases, shape); }};
}

const Algorithm* parse_hierarchical(std::string_view text) {
  constexpr std::string_view kStart = "hierarchical(";
  if (!text.starts_with(kStart) || !text.ends_with(')')) return nullptr;
  text.remove_prefix(kStart.size());
  text.remove_suffix(1);
  const size_t comma = text.find(',');  // the middle phase may contain commas
  const size_t last = text.rfind(',');
  if (comma == last) return nullptr;
  const std::string_view scatter = text.substr(0, comma);
  const std::string_view across = text.substr(comma + 1, last - comma - 1);
  const std::string_view gather = text.substr(last + 1);
  const Algorithm* all_reduce = parse_hierarchical(across);
  if (all_reduce == nullptr && across.find(',') != across.npos) return nullptr;
  if (all_reduce == nullptr) all_reduce = &require_algorithm(Collective::all_reduce, across);
  Algorithm composed =
      compose_hierarchical(require_algorithm(Collective::reduce_scatter, scatter), *all_reduce,
                           require_algorithm(Collective::all_gather, gather));
  composed.id = id_of(composed.collective, composed.name);
  return &add_algorithm(std::move(composed));
}

namespace algorithms {

namespace {

// Returns the composition that nests `levels` levels. Inside a group, ranks exchange directly, so
// that they wait for their peers once per phase. In a ring a rank would wait for each peer in turn,
// which takes long on hosts with more ranks than cores.
Algorithm nested(int32_t levels) {
  return compose_hierarchical(reduce_scatter_pairwise(),
                              levels > 1 ? nested(levels - 1) : all_reduce_halving_doubling(),
                              all_gather_all_pairs());
}

}  // namespace

// Returns the algorithm that nests as many levels as the layout of a call has.
Algorithm all_reduce_hierarchical() {
  Algorithm algorithm = nested(1);
  algorithm.name = "hierarchical";
  algorithm.emit = [](const Shape& shape) { return nested(shape.layout.levels()).emit(shape); };
  algorithm.supports = [](const Shape& shape) {
    return nested(shape.layout.levels()).supports(shape);
  };
  return algorithm;
}

}  // namespace algorithms

}  // namespace tutti
