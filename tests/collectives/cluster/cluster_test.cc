// Tests descriptions of clusters by a name, by a line or by a file, and errors in descriptions.
#include "collectives/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& text, std::optional<int> ranks = std::nullopt) {
  try {
    load_cluster(text, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Cluster, EveryNameHasTheParametersOfACall) {
  ASSERT_GE(cluster_names().size(), 8u);
  for (const std::string& name : cluster_names()) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(is_cluster(name));
    EXPECT_TRUE(is_cluster(name + ":4"));
    const Cluster cluster = load_cluster(name + ":4");
    EXPECT_EQ(cluster.hosts, 4);
    EXPECT_GE(cluster.gpus, 8);
    EXPECT_GT(cluster.inside.GBps, 0);
    EXPECT_GT(cluster.between.GBps, 0);
    EXPECT_GT(cluster.launch_us, 0);
    EXPECT_FALSE(cluster.source.empty());
  }
}

TEST(Cluster, ALineDescribesTheSameClusterAsAName) {
  const Cluster line = load_cluster("8xH100 x 32, NVLink 450, EFA 32x12.5");
  const Cluster named = load_cluster("p5:32");
  EXPECT_EQ(line.ranks(), 256);
  EXPECT_EQ(named.ranks(), 256);
  EXPECT_EQ(line.inside.GBps, named.inside.GBps);
  EXPECT_EQ(line.between.GBps, named.between.GBps);
  EXPECT_EQ(line.between.step_us, named.between.step_us);
  EXPECT_EQ(line.sums_GBps, named.sums_GBps);
}

TEST(Cluster, ALineHasUnitsAndAnyCase) {
  const Cluster plain = load_cluster("8xh100 x 4, nvlink 450, ib 8x50");
  const Cluster units = load_cluster("  8xH100 x 4,NVLink 450GB/s,IB 8x400Gbps ");
  EXPECT_EQ(plain.between.GBps, units.between.GBps);
  EXPECT_EQ(plain.inside.GBps, units.inside.GBps);
  EXPECT_EQ(units.hosts, 4);
  EXPECT_EQ(load_cluster("H100 x 2, IB 50").gpus, 1);
}

TEST(Cluster, LinksHaveHalfTheRateIfTheLineSaysSo) {
  const Cluster whole = load_cluster("8xA100, NVLink 300");
  const Cluster half = load_cluster("8xA100, NVLink 150");
  EXPECT_DOUBLE_EQ(half.inside.GBps, whole.inside.GBps / 2);
  EXPECT_DOUBLE_EQ(load_cluster("8xA100").inside.GBps, whole.inside.GBps);
  EXPECT_EQ(whole.sums_GBps, 0) << "its switches do not add up";
  EXPECT_GT(load_cluster("8xH100").sums_GBps, 0);
}

TEST(Cluster, AMeshHasALinkToEachOtherGpu) {
  EXPECT_DOUBLE_EQ(load_cluster("8xMI300X").inside.GBps, 7 * 48);
  EXPECT_DOUBLE_EQ(load_cluster("2xMI300X").inside.GBps, 48);
}

TEST(Cluster, OverPciTheProtocolOfNvlinkIsMissing) {
  const Cluster cluster = load_cluster("8xL40S x 2, PCIe 32, RoCE 2x25, SHARP");
  const auto ll128 = static_cast<size_t>(MessageProtocol::ll128);
  EXPECT_EQ(cluster.inside.step_us[ll128], 0);
  EXPECT_EQ(cluster.between.step_us[ll128], 0);
  EXPECT_TRUE(cluster.sums_between);
}

TEST(Cluster, RanksUseAPartOfAHostOrWholeHosts) {
  EXPECT_EQ(load_cluster("p5", 4).gpus, 4);
  EXPECT_EQ(load_cluster("p5", 4).hosts, 1);
  EXPECT_EQ(load_cluster("p5", 64).hosts, 8);
  EXPECT_EQ(load_cluster("p5:32", 64).hosts, 8);
  EXPECT_EQ(load_cluster("p5", 1).ranks(), 1);
  EXPECT_THAT(refusal("p5", 12), HasSubstr("12 ranks do not fill whole hosts of 8 GPUs"));
  EXPECT_THAT(refusal("p5:2", 64), HasSubstr("room for 16 ranks, not for 64"));
}

TEST(Cluster, NamesTheErrorInALine) {
  EXPECT_THAT(refusal("dgx-h10"),
              AllOf(HasSubstr("unknown cluster 'dgx-h10'"), HasSubstr("did you mean dgx-h100?")));
  EXPECT_THAT(refusal("p5:0"), HasSubstr("0 is not a number of hosts"));
  EXPECT_THAT(refusal("8xL40S"),
              AllOf(HasSubstr("the GPU link of 'L40S' is unknown"), HasSubstr("8xL40S, PCIe 32")));
  EXPECT_THAT(refusal("8xH100 x 2"), HasSubstr("has no network between its 2 hosts"));
  EXPECT_THAT(refusal("8xH100", 16), HasSubstr("has no network between its 2 hosts"));
  EXPECT_THAT(refusal("8xH100 x 2, Carrier 50"),
              AllOf(HasSubstr("'Carrier' is not a kind of link"), HasSubstr("IB, RoCE, EFA")));
  EXPECT_THAT(refusal("8xH100 x 2, IB 8x"), HasSubstr("'IB 8x' has no bandwidth"));
  EXPECT_THAT(refusal("8xH100 x 2, IB 8xfast"), HasSubstr("fast"));
  EXPECT_THAT(refusal("8xH100 x 2, IB 50, EFA 50"),
              HasSubstr("'EFA 50' is a second network between hosts"));
  EXPECT_THAT(refusal("8xH100 x none, IB 50"), HasSubstr("'none' is not a number of hosts"));
  EXPECT_THAT(refusal("8xH100 x 9999999, IB 50"), HasSubstr("is not a number of hosts"));
  EXPECT_THAT(refusal("0xH100"), HasSubstr("a number of at least 1"));
  EXPECT_THAT(refusal("99999xH100"), HasSubstr("GPUs per host exceed the limit"));
}

TEST(Cluster, NetworksAreNotClusters) {
  for (const char* text : {"switch:8", "ring:8", "fat-tree:k=16", "torus:4x4", "synthetic",
                           "package:2 core:4 pu:1", "4x4", ""}) {
    EXPECT_FALSE(is_cluster(text)) << text;
  }
}

class ClusterFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "cluster.json";
    std::ofstream(path) << text;
    return path.string();
  }
};

TEST_F(ClusterFile, HasAllParameters) {
  Cluster cluster = load_cluster("8xB200 x 4, NVLink 900, EFA 8x50, SHARP");
  cluster.errors = {{0.1, 0.2, 0.3}};
  const std::string path = write(to_json(cluster));
  ASSERT_TRUE(is_cluster(path));
  EXPECT_EQ(to_json(load_cluster(path)), to_json(cluster));
  EXPECT_EQ(load_cluster(path, 64).hosts, 8);
}

TEST_F(ClusterFile, NamesTheErrorInAFile) {
  const std::string good = to_json(load_cluster("p5:2"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refusal(write(text));
  };
  EXPECT_THAT(with("\"launch_us\": 15", "\"launch_us\": -1"), HasSubstr("'launch_us' is -1"));
  EXPECT_THAT(with("\"hosts\": 2", "\"hosts\": 0"), HasSubstr("0 hosts of 8 GPUs"));
  EXPECT_THAT(with("\"format\": 1", "\"format\": 9"), HasSubstr("the format is 9, not 1"));
  EXPECT_THAT(with("\"between\"", "\"beyond\""), HasSubstr("between"));
  EXPECT_THAT(with("\"Simple\": 42", "\"Simple\": 0"),
              HasSubstr("the Simple protocol has no step time"));
  EXPECT_THAT(with("\"GBps\": 370.8", "\"GBps\": 0"), HasSubstr("a bandwidth of 0 GB/s"));
}

}  // namespace
}  // namespace tutti
