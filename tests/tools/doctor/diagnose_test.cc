// Tests the doctor's diagnosis of synthetic facts about hosts, each with one fault.
#include "tools/doctor/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Hosts = std::vector<HostFacts>;

HostFacts healthy(const std::string& name, int number) {
  const std::string address = "10.0.0." + std::to_string(number);
  return {.name = name,
          .ranks = 4,
          .hostname = name,
          .version = "1.0.0",
          .wire_version = 6,
          .build = "abcd",
          .kernel = "6.1",
          .processor = "x86_64",
          .cores = 8,
          .all_cores = 8,
          .memory = uint64_t{64} << 30,
          .memory_available = uint64_t{60} << 30,
          .shm_size = uint64_t{32} << 30,
          .shm_free = uint64_t{32} << 30,
          .interfaces = {{"lo", {"127.0.0.1"}, 65536, 0, true, true},
                         {"eth0", {address}, 1500, 10000, true, false}},
          .rails = {{"eth0", address, 1500, 1111, 2222}}};
}

Hosts three() { return {healthy("a", 1), healthy("b", 2), healthy("c", 3)}; }

// Returns the reachability between all hosts without faults.
std::vector<Reach> all_reach(const Hosts& hosts) {
  std::vector<Reach> reaches;
  for (int from = 0; from < static_cast<int>(hosts.size()); ++from) {
    for (int to = 0; to < static_cast<int>(hosts.size()); ++to) {
      if (from == to) continue;
      reaches.push_back({.from = from,
                         .to = to,
                         .address = hosts[static_cast<size_t>(to)].rails[0].address,
                         .own = hosts[static_cast<size_t>(from)].rails[0].address,
                         .answered = true,
                         .bulk = true,
                         .packet = 1500,
                         .common_packet = 1500,
                         .small_arrived = true,
                         .full_arrived = true,
                         .common_arrived = true});
    }
  }
  return reaches;
}

Reach& between(std::vector<Reach>& reaches, int from, int to) {
  return *std::ranges::find_if(
      reaches, [&](const Reach& reach) { return reach.from == from && reach.to == to; });
}

void fail(Reach& reach, int error) {
  reach.connect_error = error;
  reach.answered = reach.bulk = false;
  reach.small_arrived = reach.full_arrived = reach.common_arrived = false;
}

// Expects exactly one finding, which must have a remedy, and returns it.
Finding only(const std::vector<Finding>& findings) {
  EXPECT_THAT(findings, SizeIs(1));
  if (findings.empty()) return {};
  EXPECT_THAT(findings[0].remedy, Not(IsEmpty()));
  return findings[0];
}

void expect(const Finding& finding, const std::string& check, Severity severity,
            const std::string& where, const std::string& what) {
  EXPECT_EQ(finding.check, check);
  EXPECT_EQ(finding.severity, severity) << name(finding.severity);
  EXPECT_THAT(finding.where, HasSubstr(where));
  EXPECT_THAT(finding.what, HasSubstr(what));
}

TEST(Diagnose, FindsNothingInHealthyHosts) {
  const Hosts hosts = three();
  EXPECT_THAT(diagnose(hosts), IsEmpty());
  EXPECT_THAT(diagnose_network(hosts, all_reach(hosts)), IsEmpty());
  EXPECT_THAT(diagnose(Hosts{hosts[0]}), IsEmpty());
}

TEST(Diagnose, FindsAHostThatDoesNotAnswer) {
  Hosts hosts = three();
  hosts[1] = {.name = "b", .problem = "`ssh` ended with code 255"};
  const std::vector<Finding> findings = diagnose(hosts);
  expect(only(findings), check::kHosts, Severity::error, "b", "255");
  EXPECT_TRUE(rules_out_a_job(findings));
}

TEST(Diagnose, FindsTwoVersions) {
  Hosts hosts = three();
  hosts[2].version = "1.1.0";
  hosts[2].build = "ef01";
  expect(only(diagnose(hosts)), check::kVersions, Severity::warning, "c",
         "1.0.0 on a, b; 1.1.0 on c");
  hosts[2].wire_version = 7;
  const std::vector<Finding> findings = diagnose(hosts);
  ASSERT_THAT(findings, SizeIs(2));
  expect(findings[0], check::kVersions, Severity::error, "c", "wire version 6 on a, b; 7 on c");
  EXPECT_TRUE(rules_out_a_job(findings));
}

TEST(Diagnose, FindsTwoBuildsOfAVersion) {
  Hosts hosts = three();
  hosts[0].build = "ef01";
  expect(only(diagnose(hosts)), check::kVersions, Severity::warning, "a",
         "abcd on b, c; ef01 on a");
}

TEST(Diagnose, FindsDifferentSettings) {
  Hosts hosts = three();
  hosts[1].settings["TUTTI_TRANSPORT"] = "tcp";
  const std::vector<Finding> findings = diagnose(hosts);
  expect(only(findings), check::kSettings, Severity::error, "b",
         "TUTTI_TRANSPORT is auto on a, c; tcp on b");
  EXPECT_TRUE(rules_out_a_job(findings));
  // These settings need not be equal on all ranks.
  hosts = three();
  hosts[1].settings["TUTTI_TIMEOUT"] = "5";
  expect(only(diagnose(hosts)), check::kSettings, Severity::warning, "b", "TUTTI_TIMEOUT");
  hosts = three();
  hosts[1].settings["TUTTI_INTERFACE"] = "eth0";
  EXPECT_THAT(diagnose(hosts), IsEmpty());
}

TEST(Diagnose, FindsWrongSettings) {
  Hosts hosts = three();
  hosts[1].setting_problems = {"TUTTI_BIND='yes' is not one of auto|none"};
  expect(only(diagnose(hosts)), check::kSettings, Severity::error, "b", "TUTTI_BIND='yes'");
  hosts = three();
  hosts[1].setting_warnings = {"TUTTI_TIMOUT is no setting"};
  expect(only(diagnose(hosts)), check::kSettings, Severity::warning, "b", "TUTTI_TIMOUT");
}

TEST(Diagnose, FindsAStaleToken) {
  Hosts hosts = three();
  for (HostFacts& host : hosts) host.token = {"TUTTI_TOKEN_FILE=/token", "1234", ""};
  EXPECT_THAT(diagnose(hosts), IsEmpty());
  hosts[1].token.fingerprint = "5678";
  const Finding finding = only(diagnose(hosts));
  expect(finding, check::kToken, Severity::error, "b", "another on b (TUTTI_TOKEN_FILE=/token)");
  EXPECT_THAT(finding.what, Not(HasSubstr("5678")));
  // With two hosts, the token of the doctor's own shell decides.
  hosts.pop_back();
  const std::vector<Finding> findings = diagnose(hosts, {"TUTTI_TOKEN", "1234", ""});
  EXPECT_EQ(only(findings).where, "b");
}

TEST(Diagnose, FindsATokenOnOneHostOnly) {
  Hosts hosts = three();
  hosts[2].token = {"TUTTI_TOKEN", "1234", ""};
  expect(only(diagnose(hosts)), check::kToken, Severity::warning, "c", "only c has a token");
  // The doctor's own token is passed to the other ranks as well.
  EXPECT_THAT(diagnose(hosts, {"TUTTI_TOKEN", "1234", ""}), IsEmpty());
  hosts[2].token = {"TUTTI_TOKEN_FILE=/token", "", "/token has mode 0644, not 0600"};
  expect(only(diagnose(hosts)), check::kToken, Severity::error, "c", "0644");
}

TEST(Diagnose, FindsARendezvousFileOfAnotherJob) {
  Hosts hosts = three();
  hosts[0].rendezvous = {"/shared/meet", "10.0.0.9:29500", false, ""};
  expect(only(diagnose(hosts)), check::kRendezvous, Severity::warning, "/shared/meet.rank0",
         "10.0.0.9:29500, where no process listens");
  hosts[0].rendezvous.answers = true;
  expect(only(diagnose(hosts)), check::kRendezvous, Severity::error, "/shared/meet.rank0",
         "another job");
}

TEST(Diagnose, FindsMoreRanksThanCores) {
  Hosts hosts = three();
  hosts[1].cores = 2;
  const Finding finding = only(diagnose(hosts));
  expect(finding, check::kCores, Severity::warning, "b", "4 ranks share 2 cores");
  EXPECT_THAT(finding.cause, HasSubstr("2 of 8 cores"));
}

TEST(Diagnose, FindsLittleMemory) {
  Hosts hosts = three();
  hosts[1].container_memory = 100 << 20;
  expect(only(diagnose(hosts)), check::kMemory, Severity::warning, "b", "100 MiB for 4 ranks");
}

TEST(Diagnose, FindsFewOpenFiles) {
  Hosts hosts = three();
  hosts[1].open_files = 64;
  expect(only(diagnose(hosts)), check::kOpenFiles, Severity::error, "b", "64 files");
}

TEST(Diagnose, FindsLittleLockedMemory) {
  Hosts hosts = three();
  hosts[1].memlock = 64 << 10;
  expect(only(diagnose(hosts)), check::kMemlock, Severity::note, "b", "64 KiB");
  hosts[1].rdma_devices = {"mlx5_0"};
  const Finding finding = only(diagnose(hosts));
  expect(finding, check::kMemlock, Severity::error, "b", "64 KiB");
  EXPECT_THAT(finding.cause, HasSubstr("mlx5_0"));
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -l unlimited"));
}

TEST(Diagnose, FindsASmallShm) {
  Hosts hosts = three();
  hosts[1].shm_size = hosts[1].shm_free = 64 << 20;
  expect(only(diagnose(hosts)), check::kShm, Severity::warning, "b", "only 64 MiB");
  hosts[1].shm_size = uint64_t{1} << 30;
  hosts[1].shm_free = 1 << 20;
  expect(only(diagnose(hosts)), check::kShm, Severity::warning, "b", "1 MiB left");
  hosts[1].shm_size = 0;
  expect(only(diagnose(hosts)), check::kShm, Severity::warning, "b", "no /dev/shm");
}

TEST(Diagnose, FindsAWrongClock) {
  Hosts hosts = three();
  for (HostFacts& host : hosts) host.clock_offset = 100;  // the doctor's own clock is wrong
  EXPECT_THAT(diagnose(hosts), IsEmpty());
  hosts[2].clock_offset = 101.5;
  expect(only(diagnose(hosts)), check::kClock, Severity::warning, "c", "1.500 s ahead");
  hosts[2].clock_offset = 40;
  expect(only(diagnose(hosts)), check::kClock, Severity::error, "c", "60.000 s behind");
  // A difference within the measurement error is not a finding.
  hosts[2].clock_offset = 101.5;
  hosts[2].clock_error = 2;
  EXPECT_THAT(diagnose(hosts), IsEmpty());
  hosts = {healthy("a", 1), healthy("b", 2)};
  hosts[1].clock_offset = -1;
  expect(only(diagnose(hosts)), check::kClock, Severity::warning, "b", "1.000 s behind");
}

TEST(Diagnose, FindsAMissingRequestedFabric) {
  Hosts hosts = three();
  hosts[1].fabrics = {{"ucx", "libucp.so.0 is not there", "", {}}};
  EXPECT_THAT(diagnose(hosts), IsEmpty());
  for (HostFacts& host : hosts) host.settings["TUTTI_TRANSPORT"] = "shm+ucx";
  expect(only(diagnose(hosts)), check::kFabrics, Severity::error, "b", "libucp.so.0");
}

TEST(Diagnose, FindsABlockedPort) {
  const Hosts hosts = three();
  std::vector<Reach> reaches = all_reach(hosts);
  fail(between(reaches, 0, 1), ETIMEDOUT);
  const std::vector<Finding> findings = diagnose_network(hosts, reaches);
  const Finding finding = only(findings);
  expect(finding, check::kReach, Severity::error, "a (10.0.0.1) to b (10.0.0.2)", "cannot connect");
  EXPECT_THAT(finding.cause, AllOf(HasSubstr("only this direction"), HasSubstr("blocked ports")));
  EXPECT_TRUE(rules_out_a_job(findings));
  fail(between(reaches, 0, 1), ECONNREFUSED);
  EXPECT_THAT(only(diagnose_network(hosts, reaches)).cause, HasSubstr("blocked port"));
}

TEST(Diagnose, FindsAMissingRoute) {
  const Hosts hosts = three();
  std::vector<Reach> reaches = all_reach(hosts);
  // Connections from host a cannot be answered. That is not a separate finding.
  fail(between(reaches, 0, 1), ETIMEDOUT);
  fail(between(reaches, 1, 0), ENETUNREACH);
  between(reaches, 1, 0).route_error = ENETUNREACH;
  const Finding finding = only(diagnose_network(hosts, reaches));
  expect(finding, check::kReach, Severity::error, "to a (10.0.0.1)", "b cannot connect to a");
  EXPECT_THAT(finding.cause, HasSubstr("no route to it on b"));
}

TEST(Diagnose, FindsAHostThatNobodyReaches) {
  const Hosts hosts = three();
  std::vector<Reach> reaches = all_reach(hosts);
  for (Reach& reach : reaches) {
    if (reach.from == 1 || reach.to == 1) fail(reach, EHOSTUNREACH);
  }
  expect(only(diagnose_network(hosts, reaches)), check::kReach, Severity::error, "b",
         "no host reaches b");
}

TEST(Diagnose, FindsAWrongInterface) {
  Hosts hosts = three();
  hosts[1].settings["TUTTI_INTERFACE"] = "eth7";
  hosts[1].rail_problem = "TUTTI_INTERFACE names 'eth7', which is neither";
  const Finding missing = only(diagnose_network(hosts, {}));
  expect(missing, check::kInterfaces, Severity::error, "b", "eth7");
  EXPECT_THAT(missing.remedy, HasSubstr("b has eth0 (10.0.0.2)"));
  // The route exists but leads nowhere.
  hosts[1].rail_problem = "";
  hosts[1].settings["TUTTI_INTERFACE"] = "lo";
  hosts.pop_back();
  std::vector<Reach> reaches = all_reach(hosts);
  fail(between(reaches, 0, 1), ECONNREFUSED);
  between(reaches, 0, 1).address = "127.0.0.1";
  const Finding loopback = only(diagnose_network(hosts, reaches));
  expect(loopback, check::kInterfaces, Severity::error, "b (127.0.0.1)", "cannot connect");
  EXPECT_THAT(loopback.cause, AllOf(HasSubstr("loopback"), HasSubstr("TUTTI_INTERFACE=lo")));
}

TEST(Diagnose, FindsAWrongMtuAtOneEnd) {
  const Hosts hosts = three();
  std::vector<Reach> reaches = all_reach(hosts);
  Reach& reach = between(reaches, 0, 1);
  reach.packet = 9000;
  reach.full_arrived = false;
  expect(only(diagnose_network(hosts, reaches)), check::kMtu, Severity::warning,
         "a (10.0.0.1) to b",
         "packets of 9000 bytes, the MTU of a, do not reach b, whose MTU is 1500");
}

TEST(Diagnose, FindsAWrongMtuOnTheWay) {
  const Hosts hosts = three();
  std::vector<Reach> reaches = all_reach(hosts);
  Reach& reach = between(reaches, 0, 1);
  reach.full_arrived = reach.common_arrived = false;
  expect(only(diagnose_network(hosts, reaches)), check::kMtu, Severity::warning,
         "a (10.0.0.1) to b", "TCP works");
  reach.bulk = false;
  const std::vector<Finding> findings = diagnose_network(hosts, reaches);
  expect(only(findings), check::kMtu, Severity::error, "a (10.0.0.1) to b",
         "connections open, then hang");
  EXPECT_TRUE(rules_out_a_job(findings));
}

// Returns a job result in which all six directed links among three hosts have a bandwidth of
// `speed` GB/s.
JobResult links_at(double speed) {
  JobResult result{.ran = true, .transport = "tcp", .cases = 10};
  const std::vector<std::string> names = {"a", "b", "c"};
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      result.links.push_back(
          {from, to, names[static_cast<size_t>(from)], names[static_cast<size_t>(to)], 50, speed});
    }
  }
  return result;
}

TEST(Diagnose, FindsASlowLink) {
  const Hosts hosts = three();
  EXPECT_THAT(diagnose_job(hosts, links_at(1)), IsEmpty());
  JobResult one_slow = links_at(1);
  one_slow.links[2].bandwidth_GBps = 0.4;
  expect(only(diagnose_job(hosts, one_slow)), check::kLinks, Severity::warning,
         "rank 1 (b) to rank 0 (a)", "400 MB/s, but similar links have 1000");
  JobResult one_late = links_at(1);
  one_late.links[2].latency_us = 200;
  expect(only(diagnose_job(hosts, one_late)), check::kLinks, Severity::warning,
         "rank 1 (b) to rank 0 (a)", "200 us");
  // All links are alike, but below the speed of cards of 10 Gbit/s.
  const std::vector<Finding> all_slow = diagnose_job(hosts, links_at(0.1));
  ASSERT_THAT(all_slow, SizeIs(6));
  EXPECT_THAT(all_slow[0].what, HasSubstr("100 MB/s, over cards of 10 Gbit/s"));
}

TEST(Diagnose, FindsNoSlowLinkIfRanksShareACore) {
  Hosts hosts = {healthy("a", 1)};
  JobResult result = links_at(1);
  for (Link& link : result.links) link.from_host = link.to_host = "a";
  result.links[0].bandwidth_GBps = 0.1;
  EXPECT_THAT(diagnose_job(hosts, result), SizeIs(1));
  hosts[0].cores = 2;
  EXPECT_THAT(diagnose_job(hosts, result), IsEmpty());
}

TEST(Diagnose, FindsAWrongAnswerAndAFailedJob) {
  const Hosts hosts = three();
  JobResult result = links_at(1);
  result.wrong = {"all_reduce of f16, sum: 3 elements are wrong"};
  expect(only(diagnose_job(hosts, result)), check::kAnswers, Severity::error, "all ranks",
         "f16, sum");
  expect(only(diagnose_job(hosts, JobResult{.problem = "rank 1 was killed"})), check::kJob,
         Severity::error, "", "rank 1 was killed");
}

TEST(Facts, CanBeSentAsJson) {
  HostFacts facts = healthy("a", 1);
  facts.token = {"TUTTI_TOKEN", "12", ""};
  facts.settings["TUTTI_CPU"] = "avx2";
  facts.fabrics = {{"ucx", "", "1.13", {"tcp:eth0"}}};
  const Json json = to_json(facts);
  EXPECT_EQ(to_json(facts_from_json(Json::parse(json.dump()))), json);
  const Json reach = to_json(Reach{.from = 1, .to = 2, .address = "10.0.0.1", .bulk = true});
  EXPECT_EQ(to_json(reach_from_json(reach)), reach);
  const Json job = to_json(links_at(2));
  EXPECT_EQ(to_json(job_result_from_json(job)), job);
}

}  // namespace
}  // namespace tutti::tool
