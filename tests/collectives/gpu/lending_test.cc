// Tests lent messages and joint steps: which ones are found in programs, and that no lent memory is
// read after it was overwritten, in any order of the ranks.
#include "collectives/gpu/lending.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/gpu/joint_steps.h"
#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/collectives/gpu/ready_call.h"
#include "tests/collectives/random_calls.h"

namespace tutti {
namespace {

using gpu::Action;
using gpu::Actions;
using gpu::MailboxShape;
using testing::Random;

constexpr MailboxShape kShape{.slots = 4, .blocks = 1, .simple_bytes = 4096, .lines_data = 512};

// The plans of all ranks for one call.
struct Call {
  Call(const Algorithm& algorithm, int ranks) : plans(make_plans(algorithm, {.ranks = ranks})) {
    const auto p = static_cast<uint64_t>(ranks);
    const uint64_t in = has_input_blocks(algorithm.collective) ? 8 * p : 8;
    const uint64_t out = has_output_blocks(algorithm.collective) ? 8 * p : 8;
    const Request request{.collective = algorithm.collective,
                          .input = {nullptr, in, DType::i32},
                          .output = {nullptr, out, DType::i32},
                          .op = ReduceOp::sum,
                          .count = 8};
    for (int rank = 0; rank < ranks; ++rank) {
      compiled.push_back(compiled_of(Request(request), rank, ranks, &algorithm,
                                     &plans[static_cast<size_t>(rank)]));
      derive(compiled.back(), gpu::limits_of(kShape, gpu::Protocol::simple, 1));
    }
    plain = gpu::schedule(plans, kShape.slots);
    lent = gpu::lend(plans, compiled, plain, kShape.slots);
    if (lent) joined = gpu::join(plans, *lent, kShape.slots);
  }

  std::vector<Plan> plans;
  std::vector<CompiledCall> compiled;
  std::vector<Actions> plain;
  std::optional<std::vector<Actions>> lent;
  std::vector<Actions> joined;
};

int count(const Actions& actions, bool (*is)(const Action&)) {
  return static_cast<int>(std::ranges::count_if(actions, is));
}
bool lends(const Action& action) { return action.lend >= 0; }
bool reads_lent(const Action& action) { return action.lender_step >= 0; }
bool from_all(const Action& action) { return action.from_all; }
bool to_all(const Action& action) { return action.to_all; }
bool is_given(const Action& action) { return action.given; }

// With many peers, mailboxes are smaller, but large enough for an undivided message.
TEST(MailboxShape, NeedsABoundedPartOfTheMemory) {
  static_assert(gpu::mailbox_shape_of(8).simple_bytes == gpu::kMailboxShape.simple_bytes);
  static_assert(gpu::kMailboxShape.total(72) > 750'000'000);
  for (const int ranks : {2, 8, 18, 19, 32, 72, 144, 256}) {
    const MailboxShape shape = gpu::mailbox_shape_of(ranks);
    EXPECT_LE(shape.total(ranks), uint64_t{192} << 20) << ranks;
    EXPECT_GE(shape.simple_bytes, gpu::kLeastMessageBytes) << ranks;
    EXPECT_EQ(shape.simple_bytes % 16, 0) << ranks;
    EXPECT_EQ(shape.lines_data % 16, 0) << ranks;
  }
}

TEST(Lending, ARingLendsAllButPartialSumsInScratch) {
  const Call call(require_algorithm(Collective::all_reduce, "ring"), 4);
  ASSERT_TRUE(call.lent);
  for (const Actions& actions : *call.lent) {
    EXPECT_EQ(count(actions, lends), 6);
    EXPECT_EQ(count(actions, reads_lent), 6);
  }
}

TEST(Lending, ExchangesInPlaceCannotLend) {
  EXPECT_FALSE(Call(require_algorithm(Collective::all_to_all, "linear"), 4).lent);
}

TEST(JointSteps, TwoShotBecomesOneStepPerRank) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const Call call(require_algorithm(Collective::all_reduce, "two_shot"), ranks);
    ASSERT_TRUE(call.lent);
    for (const Actions& actions : call.joined) {
      EXPECT_EQ(count(actions, from_all), 1);
      EXPECT_EQ(count(actions, to_all), 1);
      EXPECT_EQ(count(actions, is_given), ranks - 1);
      EXPECT_EQ(count(actions, lends), ranks - 1);
      EXPECT_EQ(std::ssize(actions), 2 * (ranks - 1) + 1);
    }
  }
}

TEST(JointSteps, AReduceScatterSumsInOneStep) {
  const Call call(require_algorithm(Collective::reduce_scatter, "all_pairs"), 5);
  for (const Actions& actions : call.joined) {
    EXPECT_EQ(count(actions, from_all), 1);
    EXPECT_EQ(count(actions, to_all), 0);
  }
}

// Memory of one rank. It counts the writes to each place.
class Memory {
 public:
  explicit Memory(const Plan& plan) : plan_(plan) {}
  void write(const RangeList& ranges) {
    for (const int64_t place : places(ranges)) ++versions_[place];
  }
  std::vector<uint64_t> versions(const RangeList& ranges) {
    std::vector<uint64_t> found;
    for (const int64_t place : places(ranges)) found.push_back(versions_[place]);
    return found;
  }

 private:
  std::vector<int64_t> places(const RangeList& ranges) const {
    std::vector<int64_t> found;
    for_each_chunk(ranges, [&](Space space, int32_t chunk) {
      found.push_back(location(plan_.collective, plan_.program, plan_.shape, space, chunk));
    });
    return found;
  }
  const Plan& plan_;
  std::map<int64_t, uint64_t> versions_;
};

// Runs the actions of all ranks in a random interleaving. Lent messages are read as late as the
// protocol allows: one action after they were received.
class AnyOrder {
 public:
  AnyOrder(const Call& call, uint64_t seed) : call_(call), random_(seed) {
    for (const Plan& plan : call.plans) {
      memory_.emplace_back(plan);
      lent_.emplace_back();
    }
    next_.resize(call.plans.size());
  }

  // Returns "" if all actions ran and all loans had their original contents when they were read.
  // Otherwise returns which rank read overwritten memory, or "no end".
  std::string problem() {
    for (;;) {
      std::vector<size_t> able;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        if (next_[rank] < actions(rank).size() && is_able(rank)) able.push_back(rank);
      }
      if (able.empty()) break;
      const size_t rank = able[random_.below(able.size())];
      if (!act(rank)) return "rank " + std::to_string(rank) + " read what was overwritten";
      ++next_[rank];
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < actions(rank).size()) return "no end";
    }
    return "";
  }

 private:
  struct Message {
    const Step* lent = nullptr;  // the step that lends the message, or null
    std::vector<uint64_t> versions;
    bool read = false;
  };

  const Actions& actions(size_t rank) const { return (*call_.lent)[rank]; }
  const Step& step_of(size_t rank, int32_t step) const {
    return call_.plans[rank].program.steps[static_cast<size_t>(step)];
  }
  std::vector<Message>& connection(size_t from, size_t to) { return connections_[{from, to}]; }

  bool is_able(size_t rank) {
    const Action& action = actions(rank)[next_[rank]];
    const Step& step = step_of(rank, action.step);
    for (const int32_t lend : action.awaited) {
      const auto [to, number] = lent_[rank].at(lend);
      if (!connection(rank, to)[number].read) return false;
    }
    if (!receives(step.kind)) return true;
    const auto from = static_cast<size_t>(step.peers[0]);
    return received_[{from, rank}] < connection(from, rank).size();
  }

  bool act(size_t rank) {
    const Action& action = actions(rank)[next_[rank]];
    const Step& step = step_of(rank, action.step);
    if (receives(step.kind)) {
      const auto from = static_cast<size_t>(step.peers[0]);
      Message& message = connection(from, rank)[received_[{from, rank}]++];
      message.read = true;
      if (message.lent != nullptr &&
          memory_[from].versions(message.lent->src) != message.versions) {
        return false;
      }
    }
    memory_[rank].write(step.dst);
    const int32_t to = action.sends(step);
    if (to < 0) return true;
    std::vector<Message>& sent = connection(rank, static_cast<size_t>(to));
    if (action.lend >= 0) {
      const Step& send = action.forwards >= 0 ? step_of(rank, action.forwards) : step;
      lent_[rank][action.lend] = {static_cast<size_t>(to), sent.size()};
      sent.push_back({.lent = &send, .versions = memory_[rank].versions(send.src)});
    } else {
      sent.push_back({});
    }
    return true;
  }

  const Call& call_;
  Random random_;
  std::vector<Memory> memory_;
  std::vector<std::map<int32_t, std::pair<size_t, size_t>>> lent_;
  std::vector<size_t> next_;
  std::map<std::pair<size_t, size_t>, std::vector<Message>> connections_;
  std::map<std::pair<size_t, size_t>, size_t> received_;
};

TEST(Lending, NothingIsReadAfterItWasOverwritten) {
  int lending = 0;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::all_to_all, Collective::scan}) {
    for (const Algorithm* const algorithm : algorithms_for(collective)) {
      for (const int ranks : {2, 3, 4, 5, 8}) {
        if (!algorithm->supports({.ranks = ranks}).empty()) continue;
        const Call call(*algorithm, ranks);
        if (!call.lent) continue;
        ++lending;
        for (uint64_t seed = 1; seed <= 20; ++seed) {
          ASSERT_EQ(AnyOrder(call, seed).problem(), "")
              << algorithm->name << ' ' << name(collective) << " on " << ranks;
        }
      }
    }
  }
  EXPECT_GT(lending, 60);
}

// Runs every type, by the switch and by ranks, in memory of all alignments.
TEST(JointSteps, GiveTheRightSums) {
  for (const char* const name : {"two_shot", "all_pairs"}) {
    const bool all = std::string(name) == "two_shot";
    const Collective collective = all ? Collective::all_reduce : Collective::reduce_scatter;
    const Algorithm& algorithm = require_algorithm(collective, name);
    for (const int ranks : {2, 3, 4, 8}) {
      testing::EmulatedGpus gpus(
          ranks, {.slots = 4, .blocks = 2, .simple_bytes = 2048, .lines_data = 512});
      int tried = 0;
      for (uint64_t seed = 1; tried < 60; ++seed) {
        Random random(seed * 10 + static_cast<uint64_t>(ranks));
        testing::Case c = testing::draw_case(random, ranks, 3'000);
        if (c.layout.collective != collective || !c.layout.uneven.empty()) continue;
        if (c.op == ReduceOp::user) continue;
        c.algorithm = name;
        ++tried;
        SCOPED_TRACE(testing::describe(c));
        std::vector<testing::RankCall> calls;
        std::vector<Request> requests;
        calls.reserve(static_cast<size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) {
          calls.emplace_back(c, rank, seed);
          requests.push_back(calls.back().requests()[0]);
        }
        ASSERT_TRUE(gpus.run(algorithm, requests,
                             {.blocks = 2,
                              .threads = 5,
                              .lends = true,
                              .joins = true,
                              .by_switch = seed % 2 == 0,
                              .seed = seed}));
        for (const testing::RankCall& call : calls) ASSERT_EQ(call.problem(), "");
      }
    }
  }
}

}  // namespace
}  // namespace tutti
