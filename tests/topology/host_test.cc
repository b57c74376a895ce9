#include "topology/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Host, ReadsASyntheticMachine) {
  const HostTopology host =
      load_host_synthetic("package:2 [numa(memory=1GB)] l3:2(size=4MB) l2:2(size=1MB) core:1 pu:2");
  ASSERT_EQ(host.packages.size(), 2u);
  EXPECT_THAT(host.packages[1].cores, ElementsAre(4, 5, 6, 7));
  ASSERT_EQ(host.numa_nodes.size(), 2u);
  EXPECT_EQ(host.numa_nodes[0].bytes, 1000000000u);
  EXPECT_THAT(host.numa_nodes[1].cores, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(host.memory_bytes, 2000000000u);
  ASSERT_EQ(host.cores.size(), 8u);
  EXPECT_EQ(host.cores[5].package, 1);
  EXPECT_EQ(host.cores[5].numa_node, 1);
  EXPECT_THAT(host.cores[5].pus, ElementsAre(10, 11));
  EXPECT_EQ(host.pus(), 16);
  EXPECT_EQ(host.allowed_pus(), 16);

  ASSERT_EQ(host.caches.size(), 8u + 4u);  // by level: 8 x L2, then 4 x L3
  EXPECT_EQ(host.caches[0].level, 2);
  EXPECT_EQ(host.caches[0].bytes, 1000000u);
  EXPECT_THAT(host.caches[0].cores, ElementsAre(0));
  EXPECT_EQ(host.caches[9].level, 3);
  EXPECT_THAT(host.caches[9].cores, ElementsAre(2, 3));
}

TEST(Host, InvalidDescriptionsAreRefused) {
  EXPECT_THROW(load_host_synthetic("package:two"), Error);
  EXPECT_THROW(load_host_xml("/nonexistent/host.xml"), Error);
}

TEST(Host, ReadsAnXmlFileWithADisallowedCore) {
  // hwloc itself writes the file. It has four cores, of which the second is disallowed.
  hwloc_topology_t topology;
  hwloc_topology_init(&topology);
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  ASSERT_EQ(hwloc_topology_set_synthetic(topology, "package:1 core:4 pu:1"), 0);
  ASSERT_EQ(hwloc_topology_load(topology), 0);
  hwloc_bitmap_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology));
  hwloc_bitmap_clr(allowed, 1);
  ASSERT_EQ(hwloc_topology_allow(topology, allowed, nullptr, HWLOC_ALLOW_FLAG_CUSTOM), 0);
  const std::string path = testing::TempDir() + "tutti_host_test.xml";
  ASSERT_EQ(hwloc_topology_export_xml(topology, path.c_str(), 0), 0);
  hwloc_bitmap_free(allowed);
  hwloc_topology_destroy(topology);

  const HostTopology host = load_host_xml(path);
  ::unlink(path.c_str());
  ASSERT_EQ(host.cores.size(), 4u);
  EXPECT_EQ(host.allowed_cores(), 3);
  EXPECT_THAT(host.cores[1].allowed_pus, IsEmpty());
  EXPECT_THAT(bind_local_ranks(host, 3),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(3)));
}

TEST(Host, ThisHostHasTheProcessorsOfItsAffinity) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const HostTopology whole = load_host();
  EXPECT_EQ(whole.allowed_pus(), CPU_COUNT(&before));
  EXPECT_FALSE(whole.hostname.empty());
  EXPECT_GT(whole.memory_bytes, 0u);

  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const HostTopology narrow = load_host();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(narrow.allowed_cores(), 1);
  EXPECT_EQ(narrow.cores.size(), whole.cores.size());
  EXPECT_THAT(bind_local_ranks(narrow, 1), ElementsAre(ElementsAre(first)));
}

TEST(Binding, RanksSpreadOverPackagesThenCaches) {
  const HostTopology host = load_host_synthetic("package:2 l3:2 core:2 pu:2");
  const auto two = bind_local_ranks(host, 2);
  EXPECT_THAT(two[0], ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(two[1], ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  const auto four = bind_local_ranks(host, 4);
  EXPECT_THAT(four[1], ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(four[2], ElementsAre(8, 9, 10, 11));
}

TEST(Binding, EveryShareIsDisjointContiguousAndFair) {
  const HostTopology host = load_host_synthetic("package:2 core:6 pu:1");
  for (int ranks = 1; ranks <= 12; ++ranks) {
    const auto bound = bind_local_ranks(host, ranks);
    ASSERT_EQ(bound.size(), static_cast<size_t>(ranks));
    // Cores are numbered in order here, so that contiguous cores have consecutive numbers.
    int next = 0;
    for (const std::vector<int>& share : bound) {
      EXPECT_GE(share.size(), static_cast<size_t>(12 / ranks));
      EXPECT_LE(share.size(), static_cast<size_t>((12 + ranks - 1) / ranks));
      for (int pu : share) EXPECT_EQ(pu, next++);
    }
    EXPECT_EQ(next, 12);
  }
}

TEST(Binding, MoreRanksThanCoresAreNotBound) {
  const HostTopology host = load_host_synthetic("package:1 core:2 pu:2");
  const auto bound = bind_local_ranks(host, 3);
  ASSERT_EQ(bound.size(), 3u);
  for (const std::vector<int>& share : bound) EXPECT_THAT(share, IsEmpty());
}

TEST(Report, ListsThePartsOfAHost) {
  const HostTopology host = load_host_synthetic("package:2 l3:1(size=4MB) core:2 pu:2");
  EXPECT_THAT(summary(host), HasSubstr("L3        2 x 3.8 MiB, each shared by 2 cores"));
  EXPECT_THAT(summary(host), HasSubstr("cores     4 (8 hardware threads), allowed 4 (8)"));
  const Json json = to_json(host);
  EXPECT_EQ(json["cores"].size(), 4u);
  EXPECT_EQ(json["caches"][1]["cores"], Json({2, 3}));
  EXPECT_EQ(json["caches"][1]["kind"], "unified");
}

}  // namespace
}  // namespace tutti
