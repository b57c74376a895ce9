// Tests jobs on two hosts (network namespaces) with two cables between them, both of which ranks
// use.
#include <algorithm>
#include <map>
#include <string>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"
#include "tests/tools/cli/two_hosts.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kPatience;

class Rails : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (IsSkipped()) return;
    const Result made =
        shell(cat("set -e; ip -n ", a_, " link add second type veth peer name second netns ", b_,
                  "; ip -n ", a_, " address add 10.199.1.1/24 dev second; ip -n ", b_,
                  " address add 10.199.1.2/24 dev second; for host in ", a_, " ", b_,
                  "; do ip -n $host link set second up; done"));
    if (made.code != 0) GTEST_SKIP() << "no second cable: " << made.err;
  }

  // Returns the bytes that have left the host by this interface.
  uint64_t sent(const std::string& host, const std::string& interface) const {
    const std::string file = cat("/sys/class/net/", interface, "/statistics/tx_bytes");
    return std::stoull(shell(cat("ip netns exec ", host, " cat ", file)).out);
  }

  // Runs several all-reduces of 8 MiB.
  Result all_reduce(int ranks, const std::string& interfaces,
                    Process::Environment environment = {}) const {
    environment["TUTTI_INTERFACE"] = interfaces;
    environment["TUTTI_TIMEOUT"] = "60";
    const Words command = {tutti(), "bench",  "all_reduce",        "--min",        "8M", "--max",
                           "8M",    "--json", path("result.json"), "--iterations", "3"};
    return start_on_both(ranks, command, std::move(environment)).finish();
  }

  // Starts all-reduces of 8 MiB over both cables.
  Process start_all_reduces(int count, Process::Environment environment) const {
    environment["TUTTI_INTERFACE"] = "cable,second";
    environment["TUTTI_TIMEOUT"] = "60";
    return start_on_both(2,
                         {tutti(), "bench", "all_reduce", "--min", "8M", "--max", "8M",
                          "--iterations", cat(count), "--json", path("result.json")},
                         std::move(environment));
  }

  // Waits until each host has sent this many more bytes over the second cable.
  void wait_until_sent(uint64_t bytes) const {
    const Deadline deadline = Deadline::after(kPatience);
    for (const std::string& host : {a_, b_}) {
      const uint64_t before = sent(host, "second");
      while (sent(host, "second") < before + bytes) {
        ASSERT_FALSE(deadline.passed()) << host;
      }
    }
  }

  void expect_right(Process& job) const {
    const Result result = job.finish();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    expect_right();
  }

  void expect_right() const {
    const Json document = Json::parse(read(path("result.json")));
    for (const Json& row : document["results"]) {
      EXPECT_EQ(row["wrong"], 0) << row;
    }
  }
};

TEST_F(Rails, EachCableCarriesHalfOfALargeAllReduce) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    std::map<std::string, uint64_t> before;
    for (const std::string& host : {a_, b_}) {
      before[host + "cable"] = sent(host, "cable");
      before[host + "second"] = sent(host, "second");
    }
    const Result result = all_reduce(ranks, "cable,second");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    expect_right();
    for (const std::string& host : {a_, b_}) {
      const uint64_t first = sent(host, "cable") - before[host + "cable"];
      const uint64_t second = sent(host, "second") - before[host + "second"];
      EXPECT_GT(std::min(first, second), uint64_t{8} << 20) << host;
      EXPECT_LT(std::max(first, second), std::min(first, second) * 5 / 4) << host;
    }
  }
}

TEST_F(Rails, OneStreamUsesOnlyTheFirstCable) {
  const uint64_t before = sent(a_, "second");
  const Result result = all_reduce(2, "cable,second", {{"TUTTI_TCP_STREAMS", "1"}});
  EXPECT_EQ(result.code, 0) << result.err;
  expect_right();
  EXPECT_LT(sent(a_, "second") - before, uint64_t{1} << 20);
}

TEST_F(Rails, UnreachableRailIsALostConnection) {
  // The two ends of the second cable have addresses in different networks.
  ASSERT_EQ(shell(cat("ip -n ", b_, " address flush dev second && ip -n ", b_,
                      " address add 10.199.2.2/24 dev second"))
                .code,
            0);
  const Result result = all_reduce(2, "cable,second", {{"TUTTI_NETWORK_TIMEOUT", "2"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("no connection to rank "), HasSubstr("10.199.1.1"),
                    HasSubstr("10.199.2.2"), HasSubstr("(rail 1 of 2): Network is unreachable"),
                    HasSubstr("remedy: let TUTTI_INTERFACE list")));
}

// The route comes back after the other host has tried to connect, so its packets are answered late.
TEST_F(Rails, ShortOutageDelaysTheFirstConnections) {
  ASSERT_EQ(shell(cat("ip -n ", b_, " route del 10.199.1.0/24 dev second")).code, 0);
  Process job = start_all_reduces(3, {{"TUTTI_NETWORK_TIMEOUT", "20"}});
  const Deadline deadline = Deadline::after(kPatience);
  while (shell(cat("ip netns exec ", a_, " ss -Htn state syn-sent")).out.empty()) {
    ASSERT_FALSE(deadline.passed());
  }
  ASSERT_EQ(shell(cat("ip -n ", b_, " route add 10.199.1.0/24 dev second src 10.199.1.2")).code, 0);
  expect_right(job);
}

// Data in flight over the failed cable and all later data use the other cable. The first cable also
// carries the control channel.
TEST_F(Rails, OneCableCarriesAllAfterTheOtherFails) {
  for (const std::string cable : {"second", "cable"}) {
    SCOPED_TRACE(cable);
    Process job = start_all_reduces(300, {{"TUTTI_NETWORK_TIMEOUT", "2"}});
    wait_until_sent(16 << 20);
    ASSERT_EQ(shell(cat("ip -n ", b_, " link set ", cable, " down")).code, 0);
    expect_right(job);
    ASSERT_EQ(shell(cat("ip -n ", b_, " link set ", cable, " up")).code, 0);
  }
}

// Resets all connections, including those of the control channel.
TEST_F(Rails, JobSurvivesResetConnections) {
  for (const std::string encrypt : {"off", "on"}) {
    SCOPED_TRACE(encrypt);
    Process job = start_all_reduces(200, {{"TUTTI_ENCRYPT", encrypt}});
    for (const std::string& host : {a_, b_, a_}) {
      wait_until_sent(16 << 20);
      const Result killed = shell(
          cat("PATH=$PATH:/usr/sbin:/sbin; ip netns exec ", host, " ss -K -Htn dst 10.199.0.0/16"));
      if (killed.code != 0 || killed.out.empty()) {
        GTEST_SKIP() << "connections cannot be reset here: " << killed.err;
      }
    }
    expect_right(job);
  }
}

TEST_F(Rails, OutageOfThreeSecondsOnlyCostsTime) {
  Process job = start_all_reduces(100, {});
  wait_until_sent(16 << 20);
  const Result cut =
      shell(cat("ip -n ", b_, " link set second down; sleep 3; ip -n ", b_, " link set second up"));
  ASSERT_EQ(cut.code, 0) << cut.err;
  expect_right(job);
}

TEST_F(Rails, InterfacesThatAreDownOrHaveNoAddressAreNamed) {
  const auto refusal = [&] {
    const Result result = all_reduce(2, "cable,second");
    EXPECT_EQ(result.code, 1);
    return result.err;
  };
  ASSERT_EQ(shell(cat("ip -n ", b_, " address flush dev second")).code, 0);
  EXPECT_THAT(refusal(), HasSubstr("TUTTI_INTERFACE names 'second', which has no address on host"));
  ASSERT_EQ(shell(cat("ip -n ", b_, " link set second down")).code, 0);
  EXPECT_THAT(refusal(), HasSubstr("TUTTI_INTERFACE names 'second', which is down on host"));
}

}  // namespace
}  // namespace tutti::tool
