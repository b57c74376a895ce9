// Tests host lists that users and batch systems write, and the assignment of ranks to hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "base/error.h"
#include "base/host_name.h"
#include "base/text.h"
#include "tools/launcher/agents.h"
#include "tools/launcher/hosts.h"

namespace tutti::tool {

void PrintTo(const Host& host, std::ostream* out) { *out << host.name << ':' << host.slots; }

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ParseHosts, AcceptsHostsWithAndWithoutSlots) {
  EXPECT_THAT(parse_hosts({"a", "b"}), ElementsAre(Host{"a", 0}, Host{"b", 0}));
  EXPECT_THAT(parse_hosts({"a:4", "b"}), ElementsAre(Host{"a", 4}, Host{"b", 1}));
  EXPECT_THAT(parse_hosts({"a", "b", "a"}), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(parse_hosts({"fd00::1"}), ElementsAre(Host{"fd00::1", 0}));
  EXPECT_THAT(parse_hosts({"[fd00::1]:4", "[fd00::2]"}),
              ElementsAre(Host{"fd00::1", 4}, Host{"fd00::2", 1}));
  for (const char* word : {"", "-oProxyCommand=sh", "a:", "a:0", "a:x", ":4", "a:9999999"}) {
    EXPECT_NE(failure_of([&] { parse_hosts({word}); }), "") << word;
  }
}

class HostFile : public ::testing::Test {
 protected:
  HostFile() : path_(::testing::TempDir() + cat("hosts", ::getpid())) {}
  ~HostFile() override { ::unlink(path_.c_str()); }

  std::vector<Host> read(const std::string& text) const {
    std::ofstream(path_) << text;
    return read_host_file(path_);
  }

  const std::string path_;
};

TEST_F(HostFile, ReadsTheFormatOfOpenMpi) {
  EXPECT_THAT(read("# two\nnode1 slots=4 max_slots=8\n\n  node2\tslots=2  # half\nnode3\n"),
              ElementsAre(Host{"node1", 4}, Host{"node2", 2}, Host{"node3", 1}));
}

TEST_F(HostFile, SkipsAHostWithoutSlots) {
  EXPECT_THAT(read("a slots=0\nb slots=2\nc:0\n"), ElementsAre(Host{"b", 2}));
  EXPECT_THAT(parse_hosts({"a:0", "b"}), ElementsAre(Host{"b", 1}));
  EXPECT_THAT(failure_of([&] { read("a slots=0\n"); }), HasSubstr("contains no host with slots"));
  EXPECT_THAT(failure_of([] { parse_hosts({"a:0"}); }), HasSubstr("0 slots"));
}

TEST_F(HostFile, SkipsAByteOrderMark) {
  EXPECT_THAT(read("\xEF\xBB\xBFnode1:4\nnode2:2\n"),
              ElementsAre(Host{"node1", 4}, Host{"node2", 2}));
}

TEST_F(HostFile, ReadsRacks) {
  EXPECT_THAT(read("node1 slots=4 rack=row0.rack1\nnode2:2 rack=row0.rack2\n"),
              ElementsAre(Host{"node1", 4, "row0.rack1"}, Host{"node2", 2, "row0.rack2"}));
  EXPECT_THROW(read("node1 rack=a..b\n"), Error);
  EXPECT_THROW(read("node1 rack\n"), Error);
}

TEST_F(HostFile, ReadsTheFormatOfMpich) {
  EXPECT_THAT(read("node1:4\nnode2:2\n"), ElementsAre(Host{"node1", 4}, Host{"node2", 2}));
}

TEST_F(HostFile, ReadsAListOfNames) {
  EXPECT_THAT(read("node1\nnode2\n"), ElementsAre(Host{"node1", 0}, Host{"node2", 0}));
  EXPECT_THAT(read("node1\nnode1\nnode2\nnode1\r\n"),
              ElementsAre(Host{"node1", 3}, Host{"node2", 1}));
}

TEST_F(HostFile, MistakesAreNamedWithTheirLine) {
  EXPECT_THAT(failure_of([&] { read("a slots=2\nb slots=two\n"); }),
              AllOf(HasSubstr("'slots=two' cannot be parsed"), HasSubstr(path_ + ", line 2")));
  EXPECT_THAT(failure_of([&] { read("a cores=2\n"); }), HasSubstr("'cores=2' cannot be parsed"));
  EXPECT_THAT(failure_of([&] { read("\n-x\n"); }), HasSubstr("line 2"));
  EXPECT_THAT(failure_of([&] { read("# none\n"); }), HasSubstr("contains no host"));
  EXPECT_THAT(failure_of([] { read_host_file("/nowhere/hosts"); }), HasSubstr("/nowhere/hosts"));
}

std::optional<Allocation> allocation(const std::map<std::string, std::string>& variables) {
  return find_allocation([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Allocation, ReadsTheVariablesOfSlurm) {
  EXPECT_FALSE(allocation({}));
  std::map<std::string, std::string> slurm = {
      {"SLURM_JOB_ID", "5"}, {"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "2(x2),1"}};
  const auto found = allocation(slurm);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->hosts, ElementsAre(Host{"n1", 2}, Host{"n2", 2}, Host{"n3", 1}));
  EXPECT_THAT(found->remote_shell, HasSubstr("srun "));
  EXPECT_FALSE(found->only_here);
  slurm["SLURM_STEP_ID"] = "4294967290";
  EXPECT_TRUE(allocation(slurm)) << "the shell that salloc opens is a step of that number";
  slurm["SLURM_STEP_ID"] = "0";
  EXPECT_FALSE(allocation(slurm)) << "a step has what it was given, not all hosts";
  EXPECT_TRUE(allocation({{"SLURM_JOB_ID", "5"},
                          {"SLURM_JOB_NODELIST", "n1"},
                          {"SLURM_TASKS_PER_NODE", "2"},
                          {"SLURMD_NODENAME", "n1"}})
                  ->only_here);
}

TEST(Allocation, ReadsTheVariablesOfLsf) {
  EXPECT_THAT(allocation({{"LSB_MCPU_HOSTS", "a 4 b 2"}})->hosts,
              ElementsAre(Host{"a", 4}, Host{"b", 2}));
  EXPECT_THAT(allocation({{"LSB_HOSTS", "a a b"}})->hosts, ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(failure_of([] {
                allocation({{"LSB_MCPU_HOSTS", "a four"}});
              }),
              HasSubstr("LSB_MCPU_HOSTS='a four'"));
}

// An allocation of only this host needs no remote shell.
TEST(Allocation, ReportsAnAllocationOfThisHostOnly) {
  const std::string own = host_name();
  EXPECT_TRUE(allocation({{"LSB_MCPU_HOSTS", own + " 4"}})->only_here);
  EXPECT_TRUE(allocation({{"LSB_MCPU_HOSTS", own + ".example.org 4"}})->only_here);
  EXPECT_FALSE(allocation({{"LSB_MCPU_HOSTS", own + "-2 4"}})->only_here);
}

TEST_F(HostFile, ReadsTheFileOfAnAllocation) {
  read("a\na\nb\n");
  for (const char* variable : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
    EXPECT_THAT(allocation({{variable, path_}})->hosts, ElementsAre(Host{"a", 2}, Host{"b", 1}));
  }
  read("a\nb\n");
  EXPECT_THAT(allocation({{"PBS_NODEFILE", path_}})->hosts,
              ElementsAre(Host{"a", 1}, Host{"b", 1}));
}

TEST(Deal, DividesEquallyWithoutSlots) {
  EXPECT_THAT(deal_ranks(5, {{"a"}, {"b"}}, MapBy::slot),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(deal_ranks(5, {{"a"}, {"b"}}, MapBy::node),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
  EXPECT_THAT(failure_of([] {
                deal_ranks(1, {{"a"}, {"b"}}, MapBy::slot);
              }),
              HasSubstr("2 hosts are too many for 1 ranks"));
}

TEST(Deal, FillsSlots) {
  const std::vector<Host> hosts = {{"a", 3}, {"b", 1}, {"c", 2}};
  EXPECT_THAT(deal_ranks(6, hosts, MapBy::slot),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(4, 5)));
  EXPECT_THAT(deal_ranks(6, hosts, MapBy::node),
              ElementsAre(ElementsAre(0, 3, 5), ElementsAre(1), ElementsAre(2, 4)));
  EXPECT_THAT(deal_ranks(2, hosts, MapBy::slot),
              ElementsAre(ElementsAre(0, 1), IsEmpty(), IsEmpty()));
  EXPECT_THAT(failure_of([&] { deal_ranks(7, hosts, MapBy::slot); }),
              HasSubstr("7 ranks exceed the 6 slots"));
}

// Visits each host once, and checks that no parent has more children than allowed.
void walk(const std::vector<HostJob>& tree, size_t fanout, std::vector<int>& ranks, int depth,
          int& deepest) {
  EXPECT_LE(tree.size(), fanout);
  deepest = std::max(deepest, depth);
  for (const HostJob& job : tree) {
    ranks.insert(ranks.end(), job.ranks.begin(), job.ranks.end());
    if (!job.below.empty()) walk(job.below, fanout, ranks, depth + 1, deepest);
  }
}

TEST(Tree, NoHostStartsMoreThanTheFanout) {
  for (const int hosts : {1, 2, 3, 4, 16, 17, 40, 300, 1000}) {
    for (const int fanout : {1, 2, 3, 16}) {
      if (fanout == 1 && hosts > 40) continue;
      std::vector<HostJob> jobs(static_cast<size_t>(hosts));
      std::vector<int> all;
      for (int i = 0; i < hosts; ++i) {
        jobs[static_cast<size_t>(i)].ranks = {i};
        all.push_back(i);
      }
      std::vector<int> ranks;
      int deepest = 0;
      walk(make_tree(jobs, fanout), static_cast<size_t>(fanout), ranks, 1, deepest);
      EXPECT_EQ(ranks, all) << "in their order";
      if (fanout == 16) {
        EXPECT_LE(deepest, hosts <= 16 ? 1 : hosts <= 16 * 17 ? 2 : 3);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::tool
