#include "training/pipeline/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// --- exhaustive search over all partitions ---

double link_time(const Link& link, double bytes) { return link.latency + bytes / link.bandwidth; }

class Exhaustive {
 public:
  Exhaustive(const std::vector<Layer>& layers, const Cluster& cluster, bool replicates = true)
      : layers_(layers), cluster_(cluster), most_(replicates ? 1000 : 1) {}

  double best() {
    best_ = kInfinite;
    nodes(0, cluster_.nodes, 0);
    return best_;
  }

 private:
  double sum(int first, int end, const std::function<double(const Layer&)>& value) const {
    double result = 0;
    for (int i = first; i < end; ++i) result += value(layers_[static_cast<size_t>(i)]);
    return result;
  }
  double bytes(int first, int end) const {
    return sum(first, end, [](const Layer& l) { return static_cast<double>(l.parameter_bytes); });
  }
  double round_trip(int end, const Link& link) const {
    return 2 * link_time(link, static_cast<double>(
                                   layers_[static_cast<size_t>(end - 1)].activation_bytes));
  }
  // Returns the time per micro-batch of m workers that take turns and then sum their gradients.
  double shared(double alone, int m, double bytes, const Link& link) const {
    const bool sums = m > 1 && bytes > 0;
    return std::max(alone, sums ? 2 * (m - 1) * link_time(link, bytes) : 0.0) / m;
  }
  int layers() const { return static_cast<int>(layers_.size()); }

  // Tries all divisions of the layers from `first` to the last over the remaining nodes.
  void nodes(int first, int left, double slowest) {
    if (first == layers()) {
      best_ = std::min(best_, slowest);
      return;
    }
    for (int end = first + 1; end <= layers(); ++end) {
      for (int m = 1; m <= std::min(left, most_); ++m) {
        const double boundary = end < layers() ? round_trip(end, cluster_.between) : 0;
        ranks(first, end, cluster_.ranks_per_node, 0, [&](double node) {
          const double stage = shared(node, m, bytes(first, end), cluster_.between);
          nodes(end, left - m, std::max({slowest, stage, boundary}));
        });
      }
    }
  }
  // Tries all ways to run the layers [first, end) on the remaining ranks of a node.
  void ranks(int first, int end, int left, double slowest,
             const std::function<void(double)>& found) {
    if (first == end) return found(slowest);
    for (int cut = first + 1; cut <= end; ++cut) {
      const bool fits = cluster_.parameter_memory == 0 ||
                        bytes(first, cut) <= static_cast<double>(cluster_.parameter_memory);
      if (!fits) break;
      const double alone = sum(first, cut, [](const Layer& l) { return l.forward + l.backward; });
      for (int m = 1; m <= std::min(left, most_); ++m) {
        const double boundary = cut < end ? round_trip(cut, cluster_.inside) : 0;
        const double stage = shared(alone, m, bytes(first, cut), cluster_.inside);
        ranks(cut, end, left - m, std::max({slowest, stage, boundary}), found);
      }
    }
  }

  std::vector<Layer> layers_;
  Cluster cluster_;
  int most_;
  double best_ = kInfinite;
};

// --- cases ---

Layer layer(const std::string& name, double seconds, int64_t activations, int64_t parameters) {
  return {name, seconds / 4, seconds * 3 / 4, activations, parameters};
}

Cluster node_of(int ranks, double bandwidth = 1) {
  return {.ranks_per_node = ranks, .inside = {.bandwidth = bandwidth}};
}

std::vector<std::string> shape(const Partition& partition) {
  std::vector<std::string> stages;
  for (const Stage& stage : partition.stages) {
    stages.push_back(cat(stage.first, '-', stage.end - 1, " on ", rank_ranges(stage.ranks)));
  }
  return stages;
}

void expect_consistent(const Partition& partition, size_t layers, const Cluster& cluster) {
  int end = 0;
  double slowest = 0;
  std::vector<int> ranks;
  for (const Stage& stage : partition.stages) {
    EXPECT_EQ(stage.first, end) << "stages follow one another";
    EXPECT_LT(stage.first, stage.end);
    EXPECT_FALSE(stage.ranks.empty());
    EXPECT_TRUE(std::ranges::is_sorted(stage.ranks));
    ranks.insert(ranks.end(), stage.ranks.begin(), stage.ranks.end());
    end = stage.end;
    slowest = std::max({slowest, stage.time, stage.boundary});
  }
  EXPECT_EQ(static_cast<size_t>(end), layers);
  EXPECT_EQ(partition.stages.back().boundary, 0);
  EXPECT_EQ(partition.time, slowest);
  EXPECT_EQ(static_cast<size_t>(partition.ranks()), ranks.size());
  std::ranges::sort(ranks);
  EXPECT_TRUE(std::ranges::adjacent_find(ranks) == ranks.end()) << "a rank has one stage";
  EXPECT_GE(ranks.front(), 0);
  EXPECT_LT(ranks.back(), cluster.ranks());
}

TEST(Partition, SplitsEqualLayersEvenly) {
  // There are too many parameters to sum, and the activations are small.
  const std::vector<Layer> layers(8, layer("block", 4, 1, 1000));
  const Partition found = partition(layers, node_of(4));
  EXPECT_THAT(shape(found), ElementsAre("0-1 on 0", "2-3 on 1", "4-5 on 2", "6-7 on 3"));
  EXPECT_EQ(found.time, 8);
  EXPECT_EQ(found.throughput(), 1.0 / 8);
  EXPECT_EQ(found.micro_batches_in_flight(), 4);
  for (const Stage& stage : found.stages) EXPECT_EQ(stage.time, 8);
  EXPECT_EQ(found.stages[0].boundary, 2);
}

TEST(Partition, ReplicatesLayersWithFewParameters) {
  // The activations are too large for the link, and there are hardly any gradients to sum.
  const std::vector<Layer> layers(6, layer("convolution", 4, 1000, 1));
  const Partition found = partition(layers, node_of(3));
  EXPECT_THAT(shape(found), ElementsAre("0-5 on 0-2"));
  EXPECT_EQ(found.time, 8);
  EXPECT_EQ(found.micro_batches_in_flight(), 1);
  EXPECT_EQ(data_parallel(layers, node_of(3)).time, found.time);
}

// As in the paper's VGG-16, convolutions have nearly all the work, and fully connected layers
// nearly all the parameters. The latter are not replicated.
TEST(Partition, KeepsLargeParametersOnOneRank) {
  const std::vector<Layer> layers = {layer("conv1", 15, 30, 1), layer("conv2", 15, 10, 1),
                                     layer("conv3", 15, 2, 2),  layer("fc1", 4, 1, 100),
                                     layer("fc2", 4, 1, 60),    layer("fc3", 1, 1, 20)};
  const Partition found = partition(layers, node_of(4));
  EXPECT_THAT(shape(found), ElementsAre("0-2 on 0-2", "3-5 on 3"));
  EXPECT_EQ(found.time, 15);
  EXPECT_EQ(found.stages[0].time, 15);
  EXPECT_EQ(found.stages[0].boundary, 4);
  EXPECT_EQ(found.stages[1].time, 9);
  EXPECT_EQ(found.micro_batches_in_flight(), 2) << "4 ranks, of which 3 take micro-batches in turn";
  EXPECT_EQ(data_parallel(layers, node_of(4)).time, 2 * 3 * 184 / 4.0);
  const Partition even = even_partition(layers, node_of(4));
  EXPECT_THAT(shape(even), ElementsAre("0-1 on 0", "2-5 on 1")) << "stages as the mesh has them";
  EXPECT_EQ(even.time, 30);
  const Partition alone = unreplicated_pipeline(layers, node_of(4));
  EXPECT_EQ(alone.time, 30) << "two convolutions on a rank: conv1's activations take longer, 60";
  expect_consistent(alone, layers.size(), node_of(4));
}

TEST(Partition, PrefersTheFastLinks) {
  // The activations between the two halves fit the link between nodes, but the gradients do not.
  const std::vector<Layer> layers = {layer("a", 8, 100, 10), layer("b", 8, 1, 10),
                                     layer("c", 8, 100, 10), layer("d", 8, 1, 10)};
  const Cluster cluster = {
      .nodes = 2, .ranks_per_node = 2, .inside = {.bandwidth = 100}, .between = {.bandwidth = 1}};
  const Partition found = partition(layers, cluster);
  EXPECT_THAT(shape(found), ElementsAre("0-1 on 0,1", "2-3 on 2,3"));
  EXPECT_EQ(found.time, 8);
  EXPECT_EQ(found.stages[0].boundary, 2);
  expect_consistent(found, layers.size(), cluster);
}

TEST(Partition, ReplicatesNodesWithStagesInside) {
  // There are too many gradients for the links inside a node, but not for those between nodes.
  const std::vector<Layer> layers(2, layer("block", 8, 1, 10));
  const Cluster cluster = {.nodes = 3,
                           .ranks_per_node = 2,
                           .inside = {.bandwidth = 1},
                           .between = {.bandwidth = 20, .latency = 1.25}};
  const Partition found = partition(layers, cluster);
  EXPECT_THAT(shape(found), ElementsAre("0-0 on 0,2,4", "1-1 on 1,3,5"));
  EXPECT_EQ(found.time, 2 * 2 * (1.25 + 20 / 20) / 3) << "2 (m - 1) (L + bytes / B) / m";
  EXPECT_DOUBLE_EQ(found.stages[0].boundary, 2.0 / 3) << "each node has a link";
  EXPECT_EQ(found.micro_batches_in_flight(), 2);
}

TEST(Partition, LeavesRanksIdleThatWouldNotHelp) {
  const std::vector<Layer> layers(4, layer("block", 1, 100, 100));
  const Partition found = partition(layers, node_of(4));
  EXPECT_THAT(shape(found), ElementsAre("0-3 on 0"));
  EXPECT_EQ(found.ranks(), 1);
  EXPECT_EQ(found.time, 4);
  // There are more ranks than layers.
  const std::vector<Layer> two(2, layer("block", 50, 1, 100));
  EXPECT_EQ(unreplicated_pipeline(two, node_of(4)).ranks(), 2);
}

TEST(Partition, StaysWithinMemory) {
  std::vector<Layer> layers(4, layer("block", 1, 100, 100));
  Cluster cluster = node_of(4);
  cluster.parameter_memory = 250;
  EXPECT_THAT(shape(partition(layers, cluster)), SizeIs(2));
  cluster.parameter_memory = 100;
  EXPECT_THAT(shape(partition(layers, cluster)), SizeIs(4));
  EXPECT_THROW(data_parallel(layers, cluster), Error);
  layers[2].parameter_bytes = 101;
  layers[2].name = "head";
  try {
    partition(layers, cluster);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("layer head is the largest, with 101 bytes"));
  }
}

TEST(Partition, FindsTheBestOfAllPartitions) {
  std::mt19937 random(1);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  int split = 0;
  int replicated = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    Cluster cluster = {.nodes = 1 + below(3), .ranks_per_node = 1 + below(3)};
    cluster.inside = {.bandwidth = 1.0 + below(20), .latency = below(3) / 2.0};
    cluster.between = {.bandwidth = 0.5 + below(8), .latency = below(3) / 2.0};
    std::vector<Layer> layers;
    for (int i = 1 + below(5); i > 0; --i) {
      layers.push_back(layer(cat("layer", i), below(40), below(30), below(3) * below(30)));
    }
    if (below(4) == 0) cluster.parameter_memory = 60 + below(60);  // a layer has at most 58
    double best = Exhaustive(layers, cluster).best();
    if (best == kInfinite) {
      EXPECT_THROW(partition(layers, cluster), Error);
      continue;
    }
    const Partition found = partition(layers, cluster);
    EXPECT_DOUBLE_EQ(found.time, best);
    expect_consistent(found, layers.size(), cluster);
    split += found.stages.size() > 1;
    replicated += found.stages.size() > 1 && found.micro_batches_in_flight() < found.ranks();
    const Partition even = even_partition(layers, cluster);
    expect_consistent(even, layers.size(), cluster);
    EXPECT_GE(even.time, best * (1 - 1e-12));
    for (const Stage& stage : even.stages) {
      EXPECT_EQ(stage.ranks.size(), even.stages.front().ranks.size());
    }
    best = Exhaustive(layers, cluster, false).best();
    if (best == kInfinite) continue;
    const Partition pipeline = unreplicated_pipeline(layers, cluster);
    EXPECT_DOUBLE_EQ(pipeline.time, best);
    expect_consistent(pipeline, layers.size(), cluster);
    EXPECT_EQ(static_cast<size_t>(pipeline.ranks()), pipeline.stages.size());
  }
  EXPECT_GT(split, 50) << "the cases are too easy";
  EXPECT_GT(replicated, 20);
}

TEST(Partition, NothingSlowsDownFasterParts) {
  std::mt19937 random(2);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    Cluster cluster = {.nodes = 1 + below(4), .ranks_per_node = 1 + below(4)};
    cluster.inside.bandwidth = 1.0 + below(20);
    cluster.between.bandwidth = 1.0 + below(8);
    std::vector<Layer> layers;
    for (int i = 0; i < 12; ++i) {
      layers.push_back(layer(cat("layer", i), below(40), below(30), below(60)));
    }
    const double time = partition(layers, cluster).time;
    EXPECT_LE(time, data_parallel(layers, cluster).time);
    EXPECT_LE(time, unreplicated_pipeline(layers, cluster).time);
    Cluster more = cluster;
    more.nodes += 1;
    EXPECT_LE(partition(layers, more).time, time);
    more = cluster;
    more.between.bandwidth *= 2;
    EXPECT_LE(partition(layers, more).time, time);
    std::vector<Layer> faster = layers;
    faster[static_cast<size_t>(below(12))].forward /= 2;
    EXPECT_LE(partition(faster, cluster).time, time);
  }
}

TEST(Partition, TakesDeepModelsAndLargeClusters) {
  const std::vector<Layer> layers(96, layer("block", 1, 0, 1 << 20));
  const Cluster cluster = {
      .nodes = 4, .ranks_per_node = 8, .inside = {.bandwidth = 1}, .between = {.bandwidth = 1}};
  const Partition found = partition(layers, cluster);
  EXPECT_THAT(found.stages, SizeIs(32));
  EXPECT_EQ(found.time, 3);
  expect_consistent(found, layers.size(), cluster);
}

TEST(Partition, RefusesInvalidProblems) {
  const auto message = [](const std::vector<Layer>& layers, const Cluster& cluster) -> std::string {
    try {
      partition(layers, cluster);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  const std::vector<Layer> one = {layer("a", 1, 1, 1)};
  EXPECT_THAT(message({}, node_of(2)), HasSubstr("no layers"));
  EXPECT_THAT(message({layer("a", -1, 1, 1)}, node_of(2)), HasSubstr("layer a"));
  EXPECT_THAT(message({layer("a", kInfinite, 1, 1)}, node_of(2)), HasSubstr("layer a"));
  EXPECT_THAT(message({layer("a", 1, 1, -1)}, node_of(2)), HasSubstr("-1 bytes of parameters"));
  EXPECT_THAT(message(one, node_of(0)), HasSubstr("number of ranks per node: 0"));
  EXPECT_THAT(message(one, node_of(2, 0)), HasSubstr("bandwidth of 0"));
  EXPECT_THAT(message(one, {.nodes = 2}), HasSubstr("links of 2 nodes"));
  EXPECT_EQ(message(one, {}), "") << "one rank has no links";
}

}  // namespace
}  // namespace tutti::training::pipeline
