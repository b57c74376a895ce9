// Tests mismatched calls. Every rank must fail, in this call or in its next one, with an error that
// describes the calls of both sides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

constexpr uint64_t kCount = 100;

// Buffers that are large enough for any call of a rank.
struct Memory {
  Memory(const Communicator& comm, int odd_one)
      : p(static_cast<uint64_t>(comm.size())),
        odd_one(odd_one),
        in(p * kCount * 2, 1),
        out(p * kCount * 2, 2) {}
  ConstBuffer input(uint64_t count = kCount, DType dtype = DType::f32) const {
    return {in.data(), count, dtype};
  }
  Buffer output(uint64_t count = kCount, DType dtype = DType::f32) {
    return {out.data(), count, dtype};
  }
  uint64_t p;
  int odd_one;  // the rank that makes the mismatched call
  std::vector<float> in;
  std::vector<float> out;
};

// Makes the call of one rank. `odd` is true on the rank that makes the mismatched call.
using Calls = std::function<void(Communicator&, Memory&, bool odd)>;

struct Mistake {
  std::string name;
  Calls calls;
};

// Returns blocks of n elements, except that the block of `rank` has `other` elements.
Blocks blocks_but(uint64_t ranks, uint64_t n, int rank, uint64_t other) {
  Blocks blocks{.counts = std::vector<uint64_t>(ranks, n)};
  blocks.counts[rank] = other;
  return blocks;
}

Reduction user_sum() {
  return Reduction::user(std::make_shared<const UserOp>(
      UserOp{.combine = [](void* dst, const void* a, const void* b, uint64_t count, DType) {
        for (uint64_t i = 0; i < count; ++i) {
          static_cast<float*>(dst)[i] =
              static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
        }
      }}));
}

std::vector<Mistake> wrong_arguments() {
  return {
      {"Operator",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.all_reduce(m.input(), m.output(), odd ? ReduceOp::max : ReduceOp::sum);
       }},
      {"UserOperator",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.all_reduce(m.input(), m.output(), odd ? user_sum() : Reduction(ReduceOp::sum));
       }},
      {"PremultipliedSum",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.all_reduce(m.input(), m.output(),
                         odd ? Reduction::premul_sum(1) : Reduction(ReduceOp::sum));
       }},
      {"OperatorOfAScan",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.scan(m.input(), m.output(), odd ? ReduceOp::min : ReduceOp::sum);
       }},
      {"OperatorOfPairs",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.reduce(m.input(10, DType::f32_i32), m.output(10, DType::f32_i32),
                     odd ? ReduceOp::minloc : ReduceOp::maxloc, 0);
       }},
      {"Type",
       [](Communicator& comm, Memory& m, bool odd) {
         const DType dtype = odd ? DType::i32 : DType::f32;
         comm.all_reduce(m.input(kCount, dtype), m.output(kCount, dtype));
       }},
      {"TypeOfAnExscan",
       [](Communicator& comm, Memory& m, bool odd) {
         const DType dtype = odd ? DType::u32 : DType::i32;
         comm.exscan(m.input(kCount, dtype), m.output(kCount, dtype));
       }},
      {"Count",
       [](Communicator& comm, Memory& m, bool odd) {
         const uint64_t count = odd ? kCount / 2 : kCount;
         comm.all_reduce(m.input(count), m.output(count));
       }},
      {"CountOfZero",
       [](Communicator& comm, Memory& m, bool odd) {
         const uint64_t count = odd ? 0 : kCount;
         comm.all_reduce(m.input(count), m.output(count));
       }},
      {"CountOfAnAllToAll",
       [](Communicator& comm, Memory& m, bool odd) {
         const uint64_t count = m.p * (odd ? 5 : 6);
         comm.all_to_all(m.input(count), m.output(count));
       }},
      {"CountOfAReduceScatter",
       [](Communicator& comm, Memory& m, bool odd) {
         const uint64_t count = odd ? 5 : 6;
         comm.reduce_scatter(m.input(m.p * count), m.output(count));
       }},
      {"Algorithm",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.all_reduce(m.input(), m.output(), ReduceOp::sum,
                         {.algorithm = odd ? "ring" : "naive"});
       }},
      {"AlgorithmOfABroadcast",
       [](Communicator& comm, Memory& m, bool odd) {
         comm.broadcast(m.input(), m.output(), 0, {.algorithm = odd ? "linear" : "chain"});
       }},
  };
}

std::vector<Mistake> wrong_calls() {
  return {
      {"Collective",
       [](Communicator& comm, Memory& m, bool odd) {
         if (odd) return comm.broadcast(m.input(), m.output(), 0);
         comm.all_reduce(m.input(), m.output());
       }},
      {"ScanForExscan",
       [](Communicator& comm, Memory& m, bool odd) {
         if (odd) return comm.exscan(m.input(), m.output());
         comm.scan(m.input(), m.output());
       }},
      {"BarrierForAllToAll",
       [](Communicator& comm, Memory& m, bool odd) {
         if (odd) return comm.barrier();
         comm.all_to_all(m.input(m.p), m.output(m.p));
       }},
      {"VariantWithBlocks",
       [](Communicator& comm, Memory& m, bool odd) {
         if (!odd) return comm.all_gather(m.input(), m.output(m.p * kCount));
         comm.all_gatherv(m.input(), m.output(m.p * kCount), blocks_but(m.p, kCount, 0, kCount));
       }},
      {"Order",
       [](Communicator& comm, Memory& m, bool odd) {
         const auto first = [&] { comm.all_reduce(m.input(), m.output()); };
         const auto second = [&] { comm.reduce(m.input(), m.output(), ReduceOp::sum, 0); };
         odd ? second() : first();
         odd ? first() : second();
       }},
      {"CallTooMany",
       [](Communicator& comm, Memory& m, bool odd) {
         if (odd) comm.all_gather(m.input(), m.output(m.p * kCount));
         comm.all_reduce(m.input(), m.output());
       }},
  };
}

std::vector<Mistake> wrong_roots() {
  const auto rooted = [](std::string name, std::function<void(Communicator&, Memory&, int)> call) {
    // The odd rank names another root; in the second case it names itself, so that two ranks act as
    // roots.
    return std::vector<Mistake>{
        {"RootOf" + name, [call](Communicator& comm, Memory& m,
                                 bool odd) { call(comm, m, odd ? comm.size() - 1 : 0); }},
        {"TwoRootsOf" + name, [call](Communicator& comm, Memory& m, bool odd) {
           call(comm, m, odd ? m.odd_one : m.odd_one == 0 ? 1 : 0);
         }}};
  };
  std::vector<Mistake> mistakes;
  const auto add = [&](const std::vector<Mistake>& more) {
    mistakes.insert(mistakes.end(), more.begin(), more.end());
  };
  add(rooted("Broadcast", [](Communicator& comm, Memory& m, int root) {
    comm.broadcast(m.input(), m.output(), root);
  }));
  add(rooted("Reduce", [](Communicator& comm, Memory& m, int root) {
    comm.reduce(m.input(), m.output(), ReduceOp::sum, root);
  }));
  add(rooted("Gather", [](Communicator& comm, Memory& m, int root) {
    comm.gather(m.input(), m.output(m.p * kCount), root);
  }));
  add(rooted("Scatter", [](Communicator& comm, Memory& m, int root) {
    comm.scatter(m.input(m.p * kCount), m.output(), root);
  }));
  return mistakes;
}

std::vector<Mistake> wrong_blocks() {
  return {
      {"BlocksOfAllGatherv",
       [](Communicator& comm, Memory& m, bool odd) {
         // The odd rank has the same length as the others for its own block, but a different length
         // for the next rank's block.
         Blocks blocks = blocks_but(m.p, kCount, (comm.rank() + 1) % comm.size(), kCount);
         if (odd) blocks = blocks_but(m.p, kCount, (comm.rank() + 1) % comm.size(), kCount / 2);
         comm.all_gatherv(m.input(), m.output(m.p * kCount), blocks);
       }},
      {"BlocksOfReduceScatterv",
       [](Communicator& comm, Memory& m, bool odd) {
         const int other = (comm.rank() + 1) % comm.size();
         comm.reduce_scatterv(m.input(m.p * kCount), m.output(),
                              blocks_but(m.p, kCount, other, odd ? kCount - 1 : kCount));
       }},
      {"PairOfAllToAllv",
       [](Communicator& comm, Memory& m, bool odd) {
         const int other = (comm.rank() + 1) % comm.size();
         comm.all_to_allv(m.input(m.p * kCount), blocks_but(m.p, 7, other, odd ? 8 : 7),
                          m.output(m.p * kCount), blocks_but(m.p, 7, 0, 7));
       }},
      {"PairOfAllToAllvWithNothing",
       [](Communicator& comm, Memory& m, bool odd) {
         const int other = (comm.rank() + 1) % comm.size();
         comm.all_to_allv(m.input(m.p * kCount), blocks_but(m.p, 7, other, odd ? 0 : 7),
                          m.output(m.p * kCount), blocks_but(m.p, 7, 0, 7));
       }},
      {"PairOfGatherv",
       [](Communicator& comm, Memory& m, bool odd) {
         if (comm.rank() != 0) return comm.gatherv(m.input(odd ? 8 : 7), {}, {}, 0);
         const Blocks blocks = blocks_but(m.p, 7, 1, odd ? 6 : 7);
         comm.gatherv(m.input(7), m.output(m.p * kCount), blocks, 0);
       }},
      {"PairOfScatterv",
       [](Communicator& comm, Memory& m, bool odd) {
         if (comm.rank() != 0) return comm.scatterv({}, {}, m.output(odd ? 8 : 7), 0);
         const Blocks blocks = blocks_but(m.p, 7, 1, odd ? 0 : 7);
         comm.scatterv(m.input(m.p * kCount), blocks, m.output(7), 0);
       }},
      {"SendAndRecv",
       [](Communicator& comm, Memory& m, bool odd) {
         const int next = (comm.rank() + 1) % comm.size();
         const int previous = (comm.rank() + comm.size() - 1) % comm.size();
         Work sending = comm.send_async(m.input(odd ? 7 : 8), next);
         comm.recv(m.output(8), previous);
         sending.wait();
       }},
      {"TypeOfSendAndRecv",
       [](Communicator& comm, Memory& m, bool odd) {
         const int next = (comm.rank() + 1) % comm.size();
         const int previous = (comm.rank() + comm.size() - 1) % comm.size();
         Work sending = comm.send_async(m.input(8, odd ? DType::i32 : DType::f32), next);
         comm.recv(m.output(8), previous);
         sending.wait();
       }},
  };
}

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all;
  for (const auto& mistakes : {wrong_arguments(), wrong_calls(), wrong_roots(), wrong_blocks()}) {
    all.insert(all.end(), mistakes.begin(), mistakes.end());
  }
  return all;
}

// Returns the ranks that an error names, each once.
std::vector<int> named_ranks(const std::string& text, int ranks) {
  std::vector<int> named;
  for (int r = 0; r < ranks; ++r) {
    if (text.find("rank " + std::to_string(r) + " (") != std::string::npos) named.push_back(r);
  }
  return named;
}

class Mismatch : public ::testing::TestWithParam<std::tuple<std::string, size_t>> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", std::get<0>(GetParam())); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }

  void expect_it_everywhere(int ranks, int odd_one) {
    const Mistake mistake = all_mistakes()[std::get<1>(GetParam())];
    const auto errors = testing::run_ranks_catching(ranks, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      int32_t one = 1;
      comm.all_reduce(std::span(&one, 1));
      Memory memory(comm, odd_one);
      mistake.calls(comm, memory, comm.rank() == odd_one);
      // If the call of a rank has completed, its next call fails.
      comm.barrier();
      comm.all_reduce(std::span(&one, 1));
    });
    for (int r = 0; r < ranks; ++r) {
      SCOPED_TRACE("rank " + std::to_string(r) + " of " + std::to_string(ranks) + ", rank " +
                   std::to_string(odd_one) + " is the odd one");
      ASSERT_TRUE(errors[r].has_value());
      const std::string text = errors[r]->what();
      EXPECT_EQ(errors[r]->code(), ErrorCode::mismatch) << text;
      EXPECT_EQ(named_ranks(text, ranks).size(), 2) << text;
      EXPECT_THAT(named_ranks(text, ranks), ::testing::Contains(odd_one)) << text;
      EXPECT_NE(text.find(" called "), text.rfind(" called ")) << text;
    }
  }
};

std::string case_name(const ::testing::TestParamInfo<std::tuple<std::string, size_t>>& info) {
  return std::get<0>(info.param) + all_mistakes()[std::get<1>(info.param)].name;
}

std::vector<size_t> numbers() {
  std::vector<size_t> all(all_mistakes().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Each, Mismatch,
                         ::testing::Combine(::testing::Values("shm", "tcp"),
                                            ::testing::ValuesIn(numbers())),
                         case_name);

TEST_P(Mismatch, BothRanksReportIt) {
  expect_it_everywhere(2, static_cast<int>(std::get<1>(GetParam()) % 2));
}

// Runs several numbers of ranks, with the odd rank at different positions.
TEST_P(Mismatch, MoreRanksReportIt) {
  const auto number = static_cast<int>(std::get<1>(GetParam()));
  const int ranks = 3 + number % 6;
  expect_it_everywhere(ranks, (1 + number * 5) % ranks);
}

}  // namespace
}  // namespace tutti
