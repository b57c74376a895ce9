#include "tests/collectives/random_calls.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/text.h"
#include "collectives/program/algorithm.h"

namespace tutti::testing {

using bench::Data;
using bench::Layout;

namespace {

// Draws a count near the size of a chunk, cache line, slice or slot, or a large one.
uint64_t draw_count(Random& random, const Case& c, uint64_t largest) {
  constexpr uint64_t kSmall[] = {0, 1, 1, 2, 3, 5, 7, 17, 100, 1003};
  constexpr uint64_t kBytes[] = {64, 128, 1024, 4096, 8192, 16384, 32768, 65536};
  const auto p = static_cast<uint64_t>(c.layout.ranks);
  const bool in_blocks = has_blocks(c.layout.collective);
  // Number of blocks that share `largest`.
  const uint64_t share = in_blocks ? p : 1;
  switch (random.below(8)) {
    case 0:
      return random.pick(kSmall);
    case 1:
      return random.below(40);
    case 2:
      return random.below(3000) / share;
    case 3:
    case 4:
      return p * random.below(300) / share + random.below(3);
    case 5:
    case 6: {
      const uint64_t at = random.pick(kBytes) / size_of(c.dtype) * (random.one_in(2) ? p : 1);
      return (at + random.below(3)) / share;
    }
    default:
      return random.below(random.one_in(6) ? largest : largest / 6) / share / size_of(c.dtype);
  }
}

std::vector<uint64_t> draw_blocks(Random& random, const Case& c) {
  const int p = c.layout.ranks;
  const bool pairs = c.layout.collective == Collective::all_to_all;
  std::vector<uint64_t> blocks(pairs ? p * p : p);
  for (uint64_t& count : blocks) {
    count = random.one_in(3) ? 0 : random.below(c.layout.count * 2 + 2);
  }
  if (pairs && c.in_place) {  // then the block for a rank must be as long as the block from it
    for (int i = 0; i < p; ++i) {
      for (int j = 0; j < i; ++j) blocks[i * p + j] = blocks[j * p + i];
    }
  }
  return blocks;
}

std::string draw_algorithm(Random& random, const Case& c) {
  const Collective collective = c.layout.collective;
  const bool ordered =
      reduces(collective) && (c.op == ReduceOp::user || c.deterministic);  // compose() needs it
  const bool is_private = !c.layout.uneven.empty() && collective != Collective::all_gather &&
                          collective != Collective::reduce_scatter;
  std::vector<std::string> fit = {"auto"};
  const int p = c.layout.ranks;
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    if (p > 1 && algorithm->supports({.ranks = p, .root = c.layout.root}).empty() &&
        (!ordered || algorithm->grade == Grade::canonical) && (!is_private || algorithm->direct)) {
      fit.push_back(algorithm->name);
    }
  }
  return random.pick(fit);
}

}  // namespace

Case draw_case(Random& random, int ranks, uint64_t largest) {
  Case c;
  std::vector<Collective> collectives(std::begin(kCollectivesWithAlgorithms),
                                      std::end(kCollectivesWithAlgorithms));
  if (ranks > 1) collectives.push_back(Collective::send_recv);
  c.layout.collective = random.pick(collectives);
  c.layout.ranks = ranks;
  c.layout.root = static_cast<int>(random.below(ranks));
  c.dtype = random.pick(kAllDTypes);
  c.op = ReduceOp::user;  // used if nothing is reduced; elements have arbitrary bits
  while (reduces(c.layout.collective)) {
    c.op = random.pick(kAllReduceOps);
    if (supports(c.op, c.dtype)) break;
  }
  c.deterministic = random.one_in(6);
  c.in_place = c.layout.collective != Collective::send_recv && random.one_in(3);
  c.input_shift = random.one_in(2) ? 0 : random.below(64);
  c.output_shift = random.one_in(2) ? 0 : random.below(64);
  c.layout.count = std::min(draw_count(random, c, largest), largest / size_of(c.dtype));
  const bool blocks = c.layout.collective == Collective::reduce_scatter ||
                      c.layout.collective == Collective::scatter ||
                      has_output_blocks(c.layout.collective);
  if (blocks && random.one_in(2)) {
    c.layout.uneven = draw_blocks(random, c);
    c.gaps = random.one_in(2);
  }
  c.algorithm = draw_algorithm(random, c);
  return c;
}

std::string describe(const Case& c) {
  const Layout& l = c.layout;
  std::string text = cat(name(l.collective), l.uneven.empty() ? "" : "v", " by ", c.algorithm,
                         " of ", l.count, " ", name(c.dtype), ", ", name(c.op), ", root ", l.root,
                         " among ", l.ranks, " ranks", c.in_place ? ", in place" : "",
                         c.gaps ? ", with gaps" : "", c.deterministic ? ", deterministic" : "",
                         ", shifted by ", c.input_shift, " and ", c.output_shift, " bytes");
  if (!l.uneven.empty()) text += ", blocks";
  for (const uint64_t count : l.uneven) text += cat(' ', count);
  return text;
}

// ---- memory

namespace {

constexpr size_t kMargin = 64;

// Places the blocks of a buffer. With gaps, the order is random and differs between ranks.
Blocks place(const std::vector<uint64_t>& counts, bool gaps, uint64_t seed) {
  Blocks blocks{.counts = counts, .displacements = std::vector<uint64_t>(counts.size())};
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  if (gaps) std::ranges::shuffle(order, std::mt19937_64(seed));
  uint64_t next = 0;
  for (const size_t block : order) {
    if (gaps) next += random.below(4);
    blocks.displacements[block] = next;
    next += counts[block];
  }
  return blocks;
}

uint64_t extent(const Blocks& blocks) {
  uint64_t end = 0;
  for (size_t i = 0; i < blocks.counts.size(); ++i) {
    end = std::max(end, blocks.displacements[i] + blocks.counts[i]);
  }
  return end;
}

// Copies contiguous elements to the places of their blocks.
void spread(const std::byte* from, const Blocks& blocks, uint64_t size, std::byte* to) {
  for (size_t i = 0; i < blocks.counts.size(); ++i) {
    const uint64_t bytes = blocks.counts[i] * size;
    if (bytes > 0) std::memcpy(to + blocks.displacements[i] * size, from, bytes);
    from += bytes;
  }
}

}  // namespace

Arena::Arena(size_t bytes, size_t shift)
    : start_(kMargin + shift), now_(bytes + 2 * kMargin + shift, bench::kUntouched) {}

int64_t Arena::first_wrong() const {
  return std::ranges::mismatch(now_, wanted_).in1 - now_.begin() - static_cast<int64_t>(start_);
}

RankCall::RankCall(const Case& c, int rank, uint64_t seed) : case_(c), rank_(rank) {
  const Layout& layout = c.layout;
  input_ =
      place(layout.input_counts(rank), c.gaps && has_input_blocks(layout.collective), seed + rank);
  output_ = place(layout.output_counts(rank), c.gaps && has_output_blocks(layout.collective),
                  layout.collective == Collective::all_to_all ? seed + rank : seed - rank);
  const uint64_t size = size_of(c.dtype);
  shared_ = c.in_place && !input_.empty() && !output_.empty();
  first_ = Arena((shared_ ? std::max(extent(input_), extent(output_)) : extent(input_)) * size,
                 c.input_shift);
  if (!shared_) second_ = Arena(extent(output_) * size, c.output_shift);
  fill();
}

std::vector<Request> RankCall::requests() {
  const Reduction op = bench::reduction(Data::exact, case_.op, rank_);
  std::vector<Request> all =
      bench::requests(case_.layout, rank_, {input(), extent(input_), case_.dtype},
                      {output(), extent(output_), case_.dtype},
                      reduces(case_.layout.collective) ? op : Reduction());
  for (Request& request : all) {
    if (!request.input_blocks.empty()) request.input_blocks = input_;
    if (!request.output_blocks.empty()) request.output_blocks = output_;
  }
  return all;
}

std::string RankCall::problem() const {
  if (!first_.right()) return cat("byte ", first_.first_wrong(), shared_ ? "" : " of the input");
  if (!second_.right()) return cat("byte ", second_.first_wrong(), " of the output");
  return "";
}

// In place, the smaller buffer is this rank's block of the larger one.
std::byte* RankCall::input() {
  const Collective c = case_.layout.collective;
  if (!shared_ || has_input_blocks(c) || !has_output_blocks(c)) return first_.data();
  return first_.data() + output_.displacements[rank_] * size_of(case_.dtype);
}
std::byte* RankCall::output() {
  const Collective c = case_.layout.collective;
  if (!shared_) return second_.data();
  if (has_output_blocks(c) || !has_input_blocks(c)) return first_.data();
  return first_.data() + input_.displacements[rank_] * size_of(case_.dtype);
}

void RankCall::fill() {
  const uint64_t size = size_of(case_.dtype);
  const Layout& layout = case_.layout;
  std::vector<std::byte> elements(layout.inputs(rank_) * size);
  bench::fill_input(Data::exact, case_.dtype, case_.op, layout, rank_, elements.data());
  spread(elements.data(), input_, size, input());
  first_.expect_as_is();
  second_.expect_as_is();
  if (bench::output_parts(layout, rank_).empty()) return;
  elements = bench::expected_output(Data::exact, case_.dtype, case_.op, layout, rank_);
  Arena& arena = shared_ ? first_ : second_;
  spread(elements.data(), output_, size, arena.wanted() + (output() - arena.data()));
}

// ---- waiting

void wait_for_all(std::vector<Work>& works, uint64_t seed) {
  std::ranges::shuffle(works, std::mt19937_64(seed));
  for (size_t i = 0; i < works.size(); ++i) {
    if (i % 3 == 1) {
      while (!works[i].wait_for(std::chrono::microseconds(50))) {
      }
    } else if (i % 3 == 2) {
      while (!works[i].test()) std::this_thread::yield();
    }
    works[i].wait();
  }
}

}  // namespace tutti::testing
