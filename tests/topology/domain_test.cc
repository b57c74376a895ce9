// Tests where the ranks of a host are (NUMA node, cache), and which groups they form.
#include "topology/domain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/test_data.h"
#include "topology/host.h"

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr Domain kNowhere;

std::vector<Domain> placed(const HostTopology& host, int ranks) {
  return domains_of(host, bind_local_ranks(host, ranks));
}

TEST(Hosts, RanksOfAHostAreFoundInAnyOrder) {
  const Hosts hosts = Hosts::of(std::vector<Place>{{"b", {}}, {"a", {}}, {"b", {}}, {"b", {}}});
  EXPECT_EQ(hosts.count(), 2);
  EXPECT_EQ(hosts.largest(), 3);
  EXPECT_TRUE(hosts.near(0, 3));
  EXPECT_FALSE(hosts.near(0, 1));
  EXPECT_EQ(hosts.position_of(3), 2);
  EXPECT_EQ(hosts.ranks_on(hosts.host_of(1)), 1);
  const Hosts equal = Hosts::equal(5, 2);
  EXPECT_EQ(equal.count(), 3);
  EXPECT_TRUE(equal.near(2, 3));
  EXPECT_FALSE(equal.near(1, 2));
}

TEST(DomainText, WrittenTextIsReadBack) {
  for (const Domain& domain : {kNowhere, Domain{1, -1}, Domain{-1, 12}, Domain{3, 0}}) {
    EXPECT_EQ(parse_domain(to_text(domain)), domain) << to_text(domain);
  }
  EXPECT_EQ(to_text({1, 2}), "numa:1,cache:2");
  EXPECT_EQ(to_text(kNowhere), "");
}

TEST(DomainText, InvalidTextsAreRefused) {
  for (const char* text :
       {"numa", "numa:", "numa:x", "numa:1x", "numa:-1", "socket:1", "numa:99999999999"}) {
    EXPECT_THROW(parse_domain(text), Error) << text;
  }
}

// A host with two NUMA nodes, two caches in each, and four cores per cache.
class Domains : public ::testing::Test {
 protected:
  const HostTopology host_ = load_host_synthetic("package:2 [numa] l3:2 core:4 pu:2");
};

TEST_F(Domains, ADomainContainsAllThreadsOfItsRank) {
  EXPECT_THAT(placed(host_, 1), ElementsAre(kNowhere)) << "it spans both packages";
  EXPECT_THAT(placed(host_, 2), ElementsAre(Domain{0, -1}, Domain{1, -1}));
  EXPECT_THAT(placed(host_, 4),
              ElementsAre(Domain{0, 0}, Domain{0, 1}, Domain{1, 2}, Domain{1, 3}));
  const auto sixteen = placed(host_, 16);
  for (int r = 0; r < 16; ++r) {
    EXPECT_EQ(sixteen[static_cast<size_t>(r)], (Domain{r / 8, r / 4})) << "rank " << r;
  }
  EXPECT_THAT(placed(host_, 17), Each(kNowhere)) << "more ranks than cores are not bound";
}

TEST_F(Domains, AnOddNumberOfRanksIsDivided) {
  // The ranks have the cores 0-5, 6-10 and 11-15.
  EXPECT_THAT(placed(host_, 3), ElementsAre(Domain{0, -1}, kNowhere, Domain{1, -1}));
}

TEST_F(Domains, FollowAnyAffinity) {
  // Core i has the hardware threads 2 i and 2 i + 1.
  const std::vector<std::vector<int>> bound = {{31}, {0, 2, 7}, {6, 8}, {}, {0, 1000}, {15, 16}};
  EXPECT_THAT(domains_of(host_, bound),
              ElementsAre(Domain{1, 3}, Domain{0, 0}, Domain{0, -1}, kNowhere, kNowhere, kNowhere));
}

// For any number of ranks, each domain contains consecutive ranks, and no rank is in two domains.
TEST_F(Domains, BoundRanksKeepTheirOrder) {
  for (int ranks = 1; ranks <= 32; ++ranks) {
    const auto domains = placed(host_, ranks);
    ASSERT_EQ(domains.size(), static_cast<size_t>(ranks));
    Domain last{0, 0};
    for (const Domain& domain : domains) {
      if (domain.numa_node >= 0) {
        EXPECT_GE(domain.numa_node, last.numa_node) << ranks;
        last.numa_node = domain.numa_node;
      }
      if (domain.cache >= 0) {
        EXPECT_GE(domain.cache, last.cache) << ranks;
        EXPECT_EQ(domain.numa_node, domain.cache / 2) << ranks;
        last.cache = domain.cache;
      }
    }
  }
}

TEST(DomainsOfAHost, AreItsNodesWithoutSharedCaches) {
  const HostTopology host = load_host_synthetic("package:2 [numa] core:4 pu:1");
  EXPECT_THAT(placed(host, 4),
              ElementsAre(Domain{0, -1}, Domain{0, -1}, Domain{1, -1}, Domain{1, -1}));
}

TEST(DomainsOfAHost, OneCacheContainsAllRanks) {
  const HostTopology host = load_host_synthetic("package:1 l3:1 core:4 pu:2");
  EXPECT_THAT(placed(host, 4), Each(Domain{0, 0}));
}

// Returns true if a later major version of hwloc has written the file, which this version cannot
// read.
bool is_too_new(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string head(1000, ' ');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  const std::string mark = "<topology version=\"";
  const size_t found = head.find(mark);
  return found != std::string::npos &&
         std::stoul(head.substr(found + mark.size())) > hwloc_get_api_version() >> 16;
}

// On real machines with one rank per core, every rank must be in a cache that its cores share.
TEST(DomainsOfAHost, AreFoundInFilesOfRealMachines) {
  const std::filesystem::path folder = testing::test_data("hwloc");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  int read = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.path().extension() != ".xml" || is_too_new(file)) continue;
    SCOPED_TRACE(file.path());
    const HostTopology host = load_host_xml(file.path());
    const int cores = host.allowed_cores();
    const auto domains = placed(host, cores);
    ASSERT_EQ(domains.size(), static_cast<size_t>(cores));
    for (const Domain& domain : domains) {
      EXPECT_LT(domain.numa_node, static_cast<int>(host.numa_nodes.size()));
      EXPECT_TRUE(domain.cache >= 0 || host.caches.empty());
    }
    EXPECT_THAT(placed(host, cores + 1), Each(kNowhere));
    ++read;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace tutti
