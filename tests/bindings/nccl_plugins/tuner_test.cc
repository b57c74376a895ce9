// Tests the tuner plugin, called as NCCL does before each collective, in every interface version.
#include "bindings/nccl_plugins/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/settings.h"
#include "bindings/nccl_plugins/tuner_abi.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/proof/verify.h"
#include "tests/bindings/nccl_plugins/plugin_host.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Cost that every entry of the table has before the plugin is called, in place of NCCL's own costs.
constexpr float kNccls = 1e9;

struct Table {
  std::array<std::array<float, NCCL_NUM_PROTOCOLS>, NCCL_NUM_ALGORITHMS> times;

  Table() {
    for (auto& of_algorithm : times) of_algorithm.fill(kNccls);
  }
  float& at(int algorithm, int protocol) {
    return times.at(static_cast<size_t>(algorithm)).at(static_cast<size_t>(protocol));
  }
  float** memory() { return reinterpret_cast<float**>(times.data()); }
  // Returns the cheapest protocol of ring and tree.
  int cheapest_protocol() {
    float least = kNccls;
    int cheapest = -1;
    for (const int algorithm : {NCCL_ALGO_TREE, NCCL_ALGO_RING}) {
      for (int protocol = 0; protocol < NCCL_NUM_PROTOCOLS; ++protocol) {
        if (at(algorithm, protocol) >= least) continue;
        least = at(algorithm, protocol);
        cheapest = protocol;
      }
    }
    return cheapest;
  }
  bool operator==(const Table&) const = default;
};

// A tuner of one communicator in any version.
class Host {
 public:
  Host(const Library& library, int version, size_t ranks, size_t nodes) : version_(version) {
    if (version == 3) {
      v3_ = library.find<ncclTuner_v3_t>("ncclTunerPlugin_v3");
      EXPECT_EQ(v3_->init(ranks, nodes, log_of_host, &context_), ncclSuccess);
    } else if (version == 4) {
      v4_ = library.find<ncclTuner_v4_t>("ncclTunerPlugin_v4");
      EXPECT_EQ(v4_->init(ranks, nodes, log_of_host, &context_), ncclSuccess);
    } else if (version == 5) {
      v5_ = library.find<ncclTuner_v5_t>("ncclTunerPlugin_v5");
      EXPECT_EQ(v5_->init(&context_, 7, ranks, nodes, log_of_host, nullptr, nullptr), ncclSuccess);
    } else {
      v6_ = library.find<ncclTuner_v6_t>("ncclTunerPlugin_v6");
      EXPECT_EQ(v6_->init(&context_, 7, ranks, nodes, log_of_host, nullptr, nullptr), ncclSuccess);
      EXPECT_EQ(v6_->getChunkSize, nullptr);  // NCCL's own sizes stay
    }
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() {
    const ncclResult_t result = version_ == 3   ? v3_->destroy(context_)
                                : version_ == 4 ? v4_->destroy(context_)
                                : version_ == 5 ? v5_->finalize(context_)
                                                : v6_->finalize(context_);
    EXPECT_EQ(result, ncclSuccess);
  }

  void fill(ncclFunc_t function, size_t bytes, Table& table) {
    int channels = -7;
    ncclResult_t result = ncclInternalError;
    constexpr int kA = NCCL_NUM_ALGORITHMS;
    constexpr int kP = NCCL_NUM_PROTOCOLS;
    float** const memory = table.memory();
    if (version_ == 3) {
      result = v3_->getCollInfo(context_, function, bytes, 1, memory, kA, kP, &channels);
    } else if (version_ == 4) {
      result = v4_->getCollInfo(context_, function, bytes, 1, memory, kA, kP, 0, &channels);
    } else if (version_ == 5) {
      result = v5_->getCollInfo(context_, function, bytes, 1, memory, kA, kP, 0, &channels);
    } else {
      result = v6_->getCollInfo(context_, function, bytes, 1, memory, kA, kP, 0, &channels);
    }
    EXPECT_EQ(result, ncclSuccess);
    EXPECT_EQ(channels, -7);
  }

 private:
  int version_;
  void* context_ = nullptr;
  const ncclTuner_v3_t* v3_ = nullptr;
  const ncclTuner_v4_t* v4_ = nullptr;
  const ncclTuner_v5_t* v5_ = nullptr;
  const ncclTuner_v6_t* v6_ = nullptr;
};

class TunerTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_TRUE(library_.is_open()) << ::dlerror(); }
  Host host(size_t ranks, size_t nodes) { return {library_, GetParam(), ranks, nodes}; }

 private:
  Library library_;
};

TEST_P(TunerTest, SmallCallsUseLLAndLargeCallsUseSimple) {
  Host tuner = host(8, 1);
  for (const ncclFunc_t function : {ncclFuncBroadcast, ncclFuncReduce, ncclFuncAllGather,
                                    ncclFuncReduceScatter, ncclFuncAllReduce}) {
    Table small;
    tuner.fill(function, 256, small);
    EXPECT_EQ(small.cheapest_protocol(), NCCL_PROTO_LL) << function;
    Table large;
    tuner.fill(function, size_t{1} << 30, large);
    EXPECT_EQ(large.cheapest_protocol(), NCCL_PROTO_SIMPLE) << function;
    EXPECT_LT(large.at(NCCL_ALGO_RING, NCCL_PROTO_LL128), large.at(NCCL_ALGO_RING, NCCL_PROTO_LL));
    for (int protocol = 0; protocol < NCCL_NUM_PROTOCOLS; ++protocol) {
      EXPECT_GT(small.at(NCCL_ALGO_RING, protocol), 0) << function;
      EXPECT_LT(small.at(NCCL_ALGO_RING, protocol), large.at(NCCL_ALGO_RING, protocol));
    }
  }
}

TEST_P(TunerTest, AllGatherSizesCountAllBlocks) {
  // An all-gather and a reduce-scatter of these sizes move the same bytes, because NCCL counts all
  // blocks of an all-gather.
  Host tuner = host(8, 1);
  Table gather;
  Table scatter;
  Table reduce;
  tuner.fill(ncclFuncAllGather, size_t{1} << 30, gather);
  tuner.fill(ncclFuncReduceScatter, size_t{1} << 30, scatter);
  tuner.fill(ncclFuncAllReduce, size_t{1} << 30, reduce);
  const auto ring = [](Table& table) { return table.at(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE); };
  EXPECT_NEAR(ring(reduce) / (ring(gather) + ring(scatter)), 1, 0.2);
}

TEST_P(TunerTest, KeepsTheCostsOfUnknownCalls) {
  Host tuner = host(8, 1);
  Table table;
  table.at(NCCL_ALGO_RING, NCCL_PROTO_LL) = NCCL_ALGO_PROTO_IGNORE;
  table.at(NCCL_ALGO_TREE, NCCL_PROTO_SIMPLE) = NCCL_ALGO_PROTO_IGNORE;
  table.at(NCCL_ALGO_NVLS, NCCL_PROTO_SIMPLE) = NCCL_ALGO_PROTO_IGNORE;
  tuner.fill(ncclFuncAllReduce, 1 << 20, table);
  for (int algorithm = 0; algorithm < NCCL_NUM_ALGORITHMS; ++algorithm) {
    for (int protocol = 0; protocol < NCCL_NUM_PROTOCOLS; ++protocol) {
      const bool off = (algorithm == NCCL_ALGO_RING && protocol == NCCL_PROTO_LL) ||
                       (algorithm == NCCL_ALGO_TREE && protocol == NCCL_PROTO_SIMPLE) ||
                       (algorithm == NCCL_ALGO_NVLS && protocol == NCCL_PROTO_SIMPLE);
      const bool ours = algorithm == NCCL_ALGO_RING || algorithm == NCCL_ALGO_TREE;
      const float entry = table.at(algorithm, protocol);
      if (off) {
        EXPECT_EQ(entry, NCCL_ALGO_PROTO_IGNORE);
      } else if (ours) {
        EXPECT_NE(entry, kNccls) << algorithm << " " << protocol;
        EXPECT_GT(entry, 0);
      } else {
        EXPECT_EQ(entry, kNccls) << algorithm << " " << protocol;
      }
    }
  }
  // NCCL supports trees only for all-reduce.
  Table gather;
  tuner.fill(ncclFuncAllGather, 1 << 20, gather);
  EXPECT_EQ(gather.at(NCCL_ALGO_TREE, NCCL_PROTO_LL), kNccls);
  Table other;
  tuner.fill(static_cast<ncclFunc_t>(5), 1 << 20, other);
  EXPECT_EQ(other, Table());
}

TEST_P(TunerTest, LeavesSeveralHostsAndSingleRanksToNccl) {
  for (const auto& [ranks, nodes] : {std::pair<size_t, size_t>(16, 2), {1, 1}, {1000, 1}}) {
    take_log(NCCL_LOG_INFO);
    Host tuner = host(ranks, nodes);
    Table table;
    tuner.fill(ncclFuncAllReduce, 1 << 20, table);
    EXPECT_EQ(table, Table()) << ranks;
    EXPECT_THAT(take_log(NCCL_LOG_INFO), Contains(HasSubstr("NCCL's own predictions are kept")));
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, TunerTest, ::testing::Range(3, 7),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

TEST(TreeWithinHost, IsProved) {
  for (int32_t ranks = 1; ranks <= 9; ++ranks) {
    const Verdict verdict = verify(nccl::tree_within_host(), {.ranks = ranks});
    EXPECT_GE(verdict.grade, nccl::tree_within_host().grade) << ranks << ": " << verdict.problem;
  }
}

TEST(GpuClass, ComesFromTheSettingOrTheDevice) {
  settings().set("TUTTI_NCCL_GPU", "a100");
  std::string why;
  EXPECT_EQ(nccl::find_gpu_class(why), "a100");
  settings().set("TUTTI_NCCL_GPU", "abacus");
  EXPECT_THROW(nccl::Tuner(8, 1), Error);
  // Finds no known device: there is none, or only the emulated one.
  settings().set("TUTTI_NCCL_GPU", "");
  EXPECT_EQ(nccl::find_gpu_class(why), "");
  EXPECT_NE(why, "");
  Table table;
  nccl::Tuner(8, 1).fill(ncclFuncAllReduce, 1 << 20, table.times[0].data(), NCCL_NUM_ALGORITHMS,
                         NCCL_NUM_PROTOCOLS);
  EXPECT_EQ(table, Table());
}

TEST(MeasuredCosts, ReplacePublishedCosts) {
  settings().set("TUTTI_NCCL_GPU", "h100");
  const auto time_of_small = [] {
    Table table;
    nccl::Tuner(8, 1).fill(ncclFuncAllReduce, 256, table.times[0].data(), NCCL_NUM_ALGORITHMS,
                           NCCL_NUM_PROTOCOLS);
    return table.at(NCCL_ALGO_RING, NCCL_PROTO_LL);
  };
  const float published = time_of_small();
  CostModel measured = CostModel::defaults();
  measured.gpus["h100"] = gpu_costs(measured, "h100");
  measured.gpus["h100"].lines.call += 1e-3;
  const std::string file = ::testing::TempDir() + "/tune.json";
  std::ofstream(file) << to_json(measured);
  settings().set("TUTTI_TUNE_FILE", file);
  EXPECT_NEAR(time_of_small() - published, 1000, 1);  // microseconds
}

}  // namespace
}  // namespace tutti::testing
