// Tests the order of ranks in layouts, and the groups that they form.
#include "topology/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/test_data.h"
#include "topology/host.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

std::vector<Place> on_hosts(const std::string& hosts) {
  std::vector<Place> places;
  for (const char host : hosts) places.push_back({std::string(1, host), {}});
  return places;
}

Layout layout_of_hosts(const std::string& hosts) { return Layout::of(on_hosts(hosts)); }

Layout layout_of_caches(const std::vector<int>& caches) {
  std::vector<Place> places;
  for (const int cache : caches) places.push_back({"host", {.numa_node = -1, .cache = cache}});
  return Layout::of(places);
}

Layout layout_on(const HostTopology& host, int ranks) {
  std::vector<Place> places;
  for (const Domain& domain : domains_of(host, bind_local_ranks(host, ranks))) {
    places.push_back({"host", domain});
  }
  return Layout::of(places);
}

std::vector<int> order(const Layout& layout, int ranks) {
  std::vector<int> rank_at;
  for (int position = 0; position < ranks; ++position) rank_at.push_back(layout.rank_at(position));
  return rank_at;
}

std::vector<int> sizes(const Layout& layout, int level) {
  std::vector<int> all;
  for (int group = 0; group < layout.groups(level); ++group) {
    all.push_back(layout.size(level, group));
  }
  return all;
}

TEST(Layouts, KeepTheOrderOfRanksWithoutPlaces) {
  for (const Layout& layout :
       {Layout(), layout_of_hosts(""), layout_of_hosts("a"), layout_of_hosts("aaa"),
        layout_of_hosts("abc"), layout_of_caches({0, 0, 0}), layout_of_caches({0, 1, 2}),
        layout_of_caches({0, 0, -1, -1}), Layout::equal(4, 1), Layout::equal(4, 4)}) {
    EXPECT_EQ(layout, Layout());
    EXPECT_TRUE(layout.in_order());
    EXPECT_EQ(layout.levels(), 0);
    EXPECT_EQ(to_text(layout), "");
    EXPECT_EQ(layout.rank_at(3), 3);
  }
}

TEST(Layouts, GroupRanksByHost) {
  EXPECT_EQ(layout_of_hosts("aabb"), Layout::equal(4, 2));
  EXPECT_EQ(layout_of_hosts("aab"), Layout::equal(3, 2));
  EXPECT_EQ(layout_of_hosts("abbb"), Layout::of_sizes(std::vector{1, 3}));
  EXPECT_EQ(to_text(layout_of_hosts("aabbb")), "groups of 2, 3");
}

TEST(Layouts, OrderRanksOfAHostNextToEachOther) {
  const Layout cyclic = layout_of_hosts("abab");
  EXPECT_FALSE(cyclic.in_order());
  EXPECT_THAT(order(cyclic, 4), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(cyclic.position_of(2), 1);
  EXPECT_EQ(cyclic.of_positions(), Layout::equal(4, 2));
  EXPECT_EQ(cyclic.in_rank_order(), Layout());
  EXPECT_THAT(order(layout_of_hosts("babbca"), 6), ElementsAre(0, 2, 3, 1, 5, 4));
  EXPECT_THAT(sizes(layout_of_hosts("babbca"), 0), ElementsAre(3, 2, 1));
}

// Ranks 0 and 3 share a host. Each other rank is alone on its host.
TEST(Layouts, MayBeOutOfOrderForOnePair) {
  EXPECT_THAT(order(layout_of_hosts("abca"), 4), ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(sizes(layout_of_hosts("abca"), 0), ElementsAre(2, 1, 1));
}

TEST(Layouts, HaveALevelForEachDivision) {
  std::vector<Place> places;
  for (const char* host : {"a", "b"}) {
    for (int cache = 0; cache < 4; ++cache) {
      for (int i = 0; i < 2; ++i)
        places.push_back({host, {.numa_node = cache / 2, .cache = cache}});
    }
  }
  const Layout layout = Layout::of(places);
  ASSERT_EQ(layout.levels(), 3);
  EXPECT_THAT(sizes(layout, 0), ElementsAre(8, 8));
  EXPECT_THAT(sizes(layout, 1), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(sizes(layout, 2), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_EQ(to_text(layout), "groups of 2 in groups of 4 in groups of 8");
  EXPECT_EQ(layout.group_of(1, 7), 1);
  EXPECT_EQ(layout.group_of(1, 8), 2);
  EXPECT_EQ(layout.first(2, 3), 6);
  const Layout outside = layout.outside(2);  // the layout of the eight pairs
  ASSERT_EQ(outside.levels(), 2);
  EXPECT_THAT(sizes(outside, 0), ElementsAre(4, 4));
  EXPECT_THAT(sizes(outside, 1), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(layout.outside(0), Layout());
}

// Ranks are assigned to hosts round-robin. The order of racks differs from that of hosts.
TEST(Layouts, HaveALevelForEachSwitchAboveTheHosts) {
  const std::vector<std::string> racks = {"row0.rack0", "row1.rack0", "row0.rack1", "row0.rack0"};
  std::vector<Place> places;
  for (int rank = 0; rank < 8; ++rank) {
    const int host = rank % 4;
    places.push_back({.host = std::to_string(host), .domain = {}, .rack = racks[host]});
  }
  const Layout layout = Layout::of(places);
  ASSERT_EQ(layout.levels(), 3);
  EXPECT_THAT(order(layout, 8), ElementsAre(0, 4, 3, 7, 2, 6, 1, 5));
  EXPECT_THAT(sizes(layout, 0), ElementsAre(6, 2));
  EXPECT_THAT(sizes(layout, 1), ElementsAre(4, 2, 2));
  EXPECT_THAT(sizes(layout, 2), ElementsAre(2, 2, 2, 2));
  const Layout hosts = layout.of_hosts();
  ASSERT_EQ(hosts.levels(), 1);
  EXPECT_EQ(order(hosts, 8), order(layout, 8));
  EXPECT_THAT(sizes(hosts, 0), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(layout.of_positions().of_hosts(), hosts.of_positions());
}

TEST(Layouts, UseOnlyTheSwitchLevelsKnownForAllHosts) {
  const auto levels_with = [](const std::string& last) {
    return Layout::of(std::vector<Place>{{"a", {}, "row0.rack0"},
                                         {"b", {}, "row0.rack1"},
                                         {"c", {}, last},
                                         {"d", {}, last},
                                         {"d", {}, last}})
        .levels();
  };
  EXPECT_EQ(levels_with("row1.rack0"), 3);
  EXPECT_EQ(levels_with("row1"), 2);
  EXPECT_EQ(levels_with(""), 1);
}

TEST(Layouts, DivideOnlyHostsWithKnownPlaces) {
  const Layout layout = Layout::of(std::vector<Place>{
      {"a", {0, 0}}, {"a", {0, 1}}, {"a", {0, 0}}, {"b", {0, 0}}, {"b", {}}, {"b", {0, 1}}});
  ASSERT_EQ(layout.levels(), 2);
  EXPECT_THAT(order(layout, 6), ElementsAre(0, 2, 1, 3, 4, 5));
  EXPECT_THAT(sizes(layout, 0), ElementsAre(3, 3));
  EXPECT_THAT(sizes(layout, 1), ElementsAre(2, 1, 3));
}

TEST(Layouts, OneHostHasGroupsForItsNodesAndCaches) {
  const HostTopology host = load_host_synthetic("package:2 [numa] l3:2 core:4 pu:2");
  EXPECT_EQ(to_text(layout_on(host, 16)), "groups of 4 in groups of 8");
  EXPECT_EQ(to_text(layout_on(host, 8)), "groups of 2 in groups of 4");
  EXPECT_EQ(to_text(layout_on(host, 4)), "groups of 2");  // one rank per cache
  EXPECT_EQ(to_text(layout_on(host, 2)), "");             // one rank per node
  // If a rank has six cores, ranks straddle caches and nodes, so that there are no groups.
  for (const int ranks : {1, 3, 17}) EXPECT_EQ(to_text(layout_on(host, ranks)), "") << ranks;
}

// The AMD EPYC 9654 has twelve L3s per package, with eight cores each. The EPYC 7401 has four NUMA
// nodes per package, with two L3s of three cores each.
TEST(Layouts, TwoEpycsHaveNestedGroups) {
  const HostTopology genoa = load_host_synthetic("package:2 [numa] l3:12 core:8 pu:2");
  EXPECT_EQ(to_text(layout_on(genoa, 192)), "groups of 8 in groups of 96");
  EXPECT_EQ(to_text(layout_on(genoa, 48)), "groups of 2 in groups of 24");
  EXPECT_EQ(to_text(layout_on(genoa, 24)), "groups of 12");  // one rank per L3

  const std::filesystem::path folder = testing::test_data("hwloc");
  const std::filesystem::path file = folder / "mpibind_epyc-corona.xml";
  if (folder.empty() || !std::filesystem::exists(file)) GTEST_SKIP() << testing::kNoTestData;
  const HostTopology naples = load_host_xml(file);
  ASSERT_EQ(naples.allowed_cores(), 48);
  EXPECT_EQ(to_text(layout_on(naples, 48)), "groups of 3 in groups of 6");
  // One rank per L3, grouped by NUMA node.
  EXPECT_EQ(to_text(layout_on(naples, 16)), "groups of 2");
}

// Ranks have random places.
TEST(Layouts, KeepGroupsTogetherAndEveryRankOnce) {
  std::mt19937 random(5);
  for (int turn = 0; turn < 500; ++turn) {
    const int ranks = 1 + static_cast<int>(random() % 20);
    std::vector<Place> places;
    for (int r = 0; r < ranks; ++r) {
      const int cache = static_cast<int>(random() % 4);
      places.push_back({std::string(1, static_cast<char>('a' + random() % 3)),
                        {.numa_node = cache / 2, .cache = cache}});
    }
    const Layout layout = Layout::of(places);
    std::vector<int> all = order(layout, ranks);
    for (int p = 0; p < ranks; ++p) {
      const auto rank = static_cast<size_t>(all[static_cast<size_t>(p)]);
      EXPECT_EQ(layout.position_of(static_cast<int>(rank)), p);
      for (int level = 0; level < layout.levels(); ++level) {
        const int group = layout.group_of(level, p);
        EXPECT_LE(layout.first(level, group), p);
        EXPECT_LT(p, layout.first(level, group) + layout.size(level, group));
        const auto mate = static_cast<size_t>(layout.rank_at(layout.first(level, group)));
        EXPECT_EQ(places[rank].host, places[mate].host) << "a group is on one host";
      }
    }
    std::ranges::sort(all);
    EXPECT_TRUE(std::ranges::adjacent_find(all) == all.end());
    EXPECT_EQ(all.front(), 0);
    EXPECT_EQ(all.back(), ranks - 1);
  }
}

// There is one rank per core of real machines.
TEST(Layouts, RealMachinesHaveGroupsInOrder) {
  const std::filesystem::path folder = testing::test_data("hwloc");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  int read = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.path().extension() != ".xml") continue;
    SCOPED_TRACE(file.path());
    HostTopology host;
    try {
      host = load_host_xml(file.path());
    } catch (const Error&) {
      continue;  // a later major version of hwloc has written the file
    }
    EXPECT_TRUE(layout_on(host, host.allowed_cores()).in_order()) << "binding goes by the machine";
    ++read;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace tutti
