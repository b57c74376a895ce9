// Random calls against a serial reference (bench/layout.h): every collective, algorithm, type and
// operator, awkward counts and addresses, in and out of place, in every form of call. Inputs are
// exact, so that each byte of the callers' memory has one right value: results, inputs that must
// not change, gaps between blocks and what lies around.
//
//   PROPERTY_SEED=N in the environment starts from another seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "bench/layout.h"
#include "collectives/algorithm.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using bench::Data;
using bench::Layout;

uint64_t first_seed() {
  const char* text = std::getenv("PROPERTY_SEED");
  return text == nullptr ? 20240229 : std::strtoull(text, nullptr, 10);
}

// ---- cases: drawn alike on every rank

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <typename Values>
  auto pick(const Values& values) {
    return values[below(std::size(values))];
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  Layout layout;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::string algorithm = "auto";
  bool deterministic = false;
  bool in_place = false;
  bool gaps = false;       // between the blocks, which come in any order
  size_t input_shift = 0;  // bytes after an aligned address
  size_t output_shift = 0;
};

enum class Form { blocking, async, prepared, grouped };
constexpr Form kAllForms[] = {Form::blocking, Form::async, Form::prepared, Form::grouped};
constexpr std::string_view kFormNames[] = {"blocking", "async", "prepared", "grouped"};

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

// Around what chunks, cache lines, slices and slots are made of; the last ones are large.
uint64_t draw_count(Random& random, const Case& c) {
  constexpr uint64_t kSmall[] = {0, 1, 1, 2, 3, 5, 7, 17, 100, 1003};
  constexpr uint64_t kBytes[] = {64, 128, 1024, 4096, 8192, 16384, 32768, 65536};
  const auto p = static_cast<uint64_t>(c.layout.ranks);
  const bool in_blocks =
      has_input_blocks(c.layout.collective) || has_output_blocks(c.layout.collective);
  const uint64_t share = in_blocks ? p : 1;  // of a rank, when the buffer is so large
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
      return random.below(random.one_in(6) ? 400'000 : 60'000) / share / size_of(c.dtype);
  }
}

std::vector<uint64_t> draw_blocks(Random& random, const Case& c) {
  const int p = c.layout.ranks;
  const bool pairs = c.layout.collective == Collective::all_to_all;
  std::vector<uint64_t> blocks(pairs ? p * p : p);
  for (uint64_t& count : blocks) {
    count = random.one_in(3) ? 0 : random.below(c.layout.count * 2 + 2);
  }
  if (pairs && c.in_place) {  // then what goes to a rank must be as much as what comes from it
    for (int i = 0; i < p; ++i) {
      for (int j = 0; j < i; ++j) blocks[i * p + j] = blocks[j * p + i];
    }
  }
  return blocks;
}

std::string draw_algorithm(Random& random, const Case& c) {
  const Collective collective = c.layout.collective;
  const bool ordered =
      reduces(collective) && (c.op == ReduceOp::user || c.deterministic);  // compose() is
  const bool is_private = !c.layout.uneven.empty() && collective != Collective::all_gather &&
                          collective != Collective::reduce_scatter;
  std::vector<std::string> fit = {"auto"};
  const int p = c.layout.ranks;
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    if (p > 1 && algorithm->supports({.ranks = p, .root = c.layout.root, .group = p}).empty() &&
        (!ordered || algorithm->grade == Grade::canonical) && (!is_private || algorithm->direct)) {
      fit.push_back(algorithm->name);
    }
  }
  return random.pick(fit);
}

Case draw_case(Random& random, int ranks) {
  Case c;
  std::vector<Collective> collectives(std::begin(kCollectivesWithAlgorithms),
                                      std::end(kCollectivesWithAlgorithms));
  if (ranks > 1) collectives.push_back(Collective::send_recv);
  c.layout.collective = random.pick(collectives);
  c.layout.ranks = ranks;
  c.layout.root = static_cast<int>(random.below(ranks));
  c.dtype = random.pick(kAllDTypes);
  c.op = ReduceOp::user;  // where nothing is reduced: any bits
  while (reduces(c.layout.collective)) {
    c.op = random.pick(kAllReduceOps);
    if (supports(c.op, c.dtype)) break;
  }
  c.deterministic = random.one_in(6);
  if (c.layout.collective == Collective::reduce_scatter) {  // HACK
    c.deterministic = false;
    if (c.op == ReduceOp::user) c.dtype = DType::f32, c.op = ReduceOp::sum;
  }
  c.in_place = c.layout.collective != Collective::send_recv && random.one_in(3);
  c.input_shift = random.one_in(2) ? 0 : random.below(64);
  c.output_shift = random.one_in(2) ? 0 : random.below(64);
  c.layout.count = draw_count(random, c);
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

// ---- one rank's memory in a call

// Memory with a margin on both sides, and what every byte of it must be after the call.
class Arena {
 public:
  Arena() = default;
  Arena(size_t bytes, size_t shift)
      : start_(kMargin + shift), now_(bytes + 2 * kMargin + shift, bench::kUntouched) {}
  std::byte* data() { return now_.data() + start_; }
  void expect_as_is() { wanted_ = now_; }
  std::byte* wanted() { return wanted_.data() + start_; }
  bool right() const { return now_ == wanted_; }
  // The first byte that is wrong, from data() on.
  int64_t first_wrong() const {
    return std::ranges::mismatch(now_, wanted_).in1 - now_.begin() - static_cast<int64_t>(start_);
  }

 private:
  static constexpr size_t kMargin = 64;
  size_t start_ = 0;
  std::vector<std::byte> now_;
  std::vector<std::byte> wanted_;
};

// Where the blocks of a buffer lie. With gaps, each rank has an order of its own.
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

// Contiguous elements to where their blocks lie.
void spread(const std::byte* from, const Blocks& blocks, uint64_t size, std::byte* to) {
  for (size_t i = 0; i < blocks.counts.size(); ++i) {
    const uint64_t bytes = blocks.counts[i] * size;
    if (bytes > 0) std::memcpy(to + blocks.displacements[i] * size, from, bytes);
    from += bytes;
  }
}

class RankCall {
 public:
  RankCall(const Case& c, int rank, uint64_t seed) : case_(c), rank_(rank) {
    const Layout& layout = c.layout;
    input_ = place(layout.input_counts(rank), c.gaps && has_input_blocks(layout.collective),
                   seed + rank);
    output_ = place(layout.output_counts(rank), c.gaps && has_output_blocks(layout.collective),
                    layout.collective == Collective::all_to_all ? seed + rank : seed - rank);
    const uint64_t size = size_of(c.dtype);
    shared_ = c.in_place && !input_.empty() && !output_.empty();
    first_ = Arena((shared_ ? std::max(extent(input_), extent(output_)) : extent(input_)) * size,
                   c.input_shift);
    if (!shared_) second_ = Arena(extent(output_) * size, c.output_shift);
    fill();
  }

  std::vector<Request> requests() {
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

  CallOptions options() const {
    return {.algorithm = case_.algorithm, .deterministic = case_.deterministic};
  }

  // Prepared calls may be made again.
  bool repeatable() const { return !case_.in_place; }

  std::string problem() const {
    if (!first_.right()) return cat("byte ", first_.first_wrong(), shared_ ? "" : " of the input");
    if (!second_.right()) return cat("byte ", second_.first_wrong(), " of the output");
    return "";
  }

 private:
  // In place, the smaller buffer is this rank's block of the larger one.
  std::byte* input() {
    const Collective c = case_.layout.collective;
    if (!shared_ || has_input_blocks(c) || !has_output_blocks(c)) return first_.data();
    return first_.data() + output_.displacements[rank_] * size_of(case_.dtype);
  }
  std::byte* output() {
    const Collective c = case_.layout.collective;
    if (!shared_) return second_.data();
    if (has_output_blocks(c) || !has_input_blocks(c)) return first_.data();
    return first_.data() + input_.displacements[rank_] * size_of(case_.dtype);
  }

  void fill() {
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

  const Case& case_;
  int rank_;
  Blocks input_;
  Blocks output_;
  bool shared_ = false;  // input and output are both in the first arena
  Arena first_;
  Arena second_;
};

// ---- making the calls

// Ranks wait in orders of their own.
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

void make_calls(Communicator& comm, Form form, std::vector<RankCall>& calls, uint64_t seed) {
  std::vector<Work> works;
  std::vector<Prepared> prepared;
  if (form == Form::grouped) group_begin();
  for (RankCall& call : calls) {
    std::vector<Request> requests = call.requests();
    const bool exchange = requests.size() > 1;  // a send and a receive
    if (exchange && form == Form::blocking) group_begin();
    for (Request& request : requests) {
      if (form == Form::async) {
        works.push_back(comm.start(std::move(request), call.options()));
      } else if (form == Form::prepared) {
        prepared.push_back(comm.prepare(std::move(request), call.options()));
      } else {
        comm.run(std::move(request), call.options());
      }
    }
    if (exchange && form == Form::blocking) group_end();
  }
  if (form == Form::grouped) group_end();
  const bool twice = std::ranges::all_of(calls, &RankCall::repeatable);
  for (int round = 0; round < (twice ? 2 : 1) && !prepared.empty(); ++round) {
    for (Prepared& call : prepared) works.push_back(call.start());
    wait_for_all(works, seed + round);
    works.clear();
  }
  wait_for_all(works, seed);
}

void run_batch(Communicator& comm, uint64_t seed) {
  Random random(seed);
  const Form form = random.pick(kAllForms);
  std::vector<Case> cases(1 + random.below(4));
  for (Case& c : cases) c = draw_case(random, comm.size());
  std::vector<RankCall> calls;
  for (size_t i = 0; i < cases.size(); ++i) {
    calls.emplace_back(cases[i], comm.rank(), seed + 100 * i + comm.size());
  }
  const auto context = [&](size_t i) {
    return cat("seed ", seed, ", ", kFormNames[static_cast<size_t>(form)], " call ", i + 1, " of ",
               cases.size(), ", rank ", comm.rank(), ": ", describe(cases[i]));
  };
  try {
    make_calls(comm, form, calls, seed * 31 + comm.rank());
  } catch (const Error& error) {
    for (size_t i = 0; i < cases.size(); ++i) ADD_FAILURE() << error.what() << "\n  " << context(i);
    throw;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].problem(), "") << context(i);
  }
}

class Property : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", std::get<0>(GetParam())); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, Property,
                         ::testing::Combine(::testing::Values("shm", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

TEST_P(Property, RandomCallsMatchASerialReference) {
  const int ranks = std::get<1>(GetParam());
  const int batches = 1600 / (ranks + 4);
  const uint64_t seed = first_seed() + 1000 * ranks;
  RecordProperty("seed", std::to_string(seed));
  testing::run_ranks(ranks, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (int batch = 0; batch < batches; ++batch) run_batch(comm, seed + batch);
  });
}

}  // namespace
}  // namespace tutti
