// Tests `tutti doctor` on hosts with one real fault each. The hosts are two connected network
// namespaces, or this host under two names that a script in place of ssh reaches.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/version.h"
#include "tests/tools/cli/cli.h"
#include "tests/tools/cli/two_hosts.h"
#include "tools/launcher/address.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Json finding(const Json& report, const std::string& check) {
  for (const Json& one : report["findings"]) {
    if (one["check"] == check) return one;
  }
  ADD_FAILURE() << "no finding of " << check << " in " << report["findings"];
  return {{"check", ""}, {"severity", ""}, {"what", ""},
          {"where", ""}, {"cause", ""},    {"remedy", ""}};
}

std::string text(const Json& finding, const char* member) {
  return finding[member].get<std::string>();
}

void expect_finding(const Json& report, const std::string& check, const std::string& severity,
                    const std::string& where, const std::string& what) {
  const Json found = finding(report, check);
  EXPECT_EQ(text(found, "severity"), severity);
  EXPECT_THAT(text(found, "where"), HasSubstr(where));
  EXPECT_THAT(text(found, "what"), HasSubstr(what));
  EXPECT_THAT(text(found, "remedy"), Not(IsEmpty()));
  EXPECT_EQ(report["ok"], severity != "error") << report["findings"];
}

std::string state(const Json& report, const std::string& check) {
  for (const Json& one : report["checks"]) {
    if (one["name"] == check) return one["state"];
  }
  return "";
}

// Checks errors only: other load on this machine may make a link slow.
void expect_no_errors(const Json& report) {
  EXPECT_EQ(report["ok"], true) << report["findings"];
  for (const char* check : {"job", "known answers"}) EXPECT_EQ(state(report, check), "ok") << check;
}

// Writes a remote shell that runs `script` and then the program. In the script, $host is the name
// of the host, and $program is the program, which the script may change.
std::string write_shell(const std::string& path, const std::string& script,
                        const std::string& way) {
  std::ofstream(path) << "#!/bin/sh\nhost=$1\nprogram=$2\nshift 2\n"
                      << script << "\nexec " << way << " $program \"$@\"\n";
  ::chmod(path.c_str(), 0700);
  return path;
}

// Examines this host alone, or twice under the names "one" and "two".
class Doctor : public Cli {
 protected:
  struct Outcome {
    Json report;
    Result result;
  };
  Outcome examine(const Words& more, Process::Environment environment = {}) const {
    Words words = {"doctor", "-n", "2", "--json", path("report.json")};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words, std::move(environment));
    const std::string written = read(path("report.json"));
    EXPECT_THAT(written, Not(IsEmpty())) << result.err;
    const Json report = written.empty() ? Json::object() : Json::parse(written);
    EXPECT_EQ(result.code, report["ok"] == true ? 0 : 1) << result.out;
    return {report, result};
  }
  Outcome examine_twice(const std::string& script, Process::Environment environment = {}) const {
    environment["TUTTI_RSH"] = write_shell(path("rsh"), script, "");
    environment["TUTTI_INTERFACE"] = "lo";
    return examine({"--hosts", "one,two"}, std::move(environment));
  }
};

TEST_F(Doctor, ExaminesThisHost) {
  const auto [report, result] = examine({});
  expect_no_errors(report);
  EXPECT_THAT(result.out, AllOf(HasSubstr("ok       hosts"), HasSubstr("no errors"),
                                HasSubstr("data over TCP is unencrypted (TUTTI_ENCRYPT=auto)")));
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_EQ(state(report, "connections"), "skipped");
  ASSERT_EQ(report["pairs"].size(), 2u);
  for (const Json& pair : report["pairs"]) {
    EXPECT_EQ(pair["from"].get<int>() + pair["to"].get<int>(), 1);
    EXPECT_GT(pair["latency_us"], 0.0);
    EXPECT_GT(pair["bandwidth_GBps"], 0.0);
  }
  EXPECT_EQ(Json::parse(run({"doctor", "-n", "1", "--json", "-"}).out)["ok"], true);
}

TEST_F(Doctor, ExaminesTwoHosts) {
  const Json report = examine_twice("").report;
  expect_no_errors(report);
  EXPECT_EQ(state(report, "connections"), "ok");
  EXPECT_EQ(state(report, "MTU"), "ok");
  EXPECT_EQ(state(report, "clock"), "ok");
  EXPECT_EQ(report["hosts"].size(), 2u);
}

TEST_F(Doctor, NamesAHostThatIsDown) {
  const Json report = examine_twice("[ $host = two ] && { echo no route >&2; exit 255; }").report;
  expect_finding(report, "hosts", "error", "two", "its output: no route");
  EXPECT_EQ(state(report, "job"), "skipped");
}

TEST_F(Doctor, NamesAHostThatDoesNotAnswer) {
  Process::Environment environment = {
      {"TUTTI_RSH", write_shell(path("rsh"), "[ $host = two ] && exec tail -f /dev/null", "")},
      {"TUTTI_INTERFACE", "lo"}};
  const Json report =
      examine({"--hosts", "one,two", "--patience", "3"}, std::move(environment)).report;
  expect_finding(report, "hosts", "error", "two", "did not answer within 3 s");
}

TEST_F(Doctor, NamesAStaleToken) {
  const Json report = examine_twice("[ $host = two ] && export TUTTI_TOKEN='a token that is stale'",
                                    {{"TUTTI_TOKEN", "a token that is the secret"}})
                          .report;
  expect_finding(report, "token", "error", "two", "another on two (TUTTI_TOKEN)");
  EXPECT_THAT(report.dump(),
              AllOf(Not(HasSubstr("is stale")), Not(HasSubstr("a token that is the secret"))));
}

TEST_F(Doctor, NamesAStaleTokenFile) {
  for (const std::string name : {"old", "new"}) {
    std::ofstream(path(name)) << "the token of the " << name << " job\n";
    ::chmod(path(name).c_str(), 0600);
  }
  const Json report = examine_twice(cat("[ $host = two ] && export TUTTI_TOKEN_FILE=", path("old")),
                                    {{"TUTTI_TOKEN_FILE", path("new")}})
                          .report;
  expect_finding(report, "token", "error", "two", "TUTTI_TOKEN_FILE=" + path("old"));
}

TEST_F(Doctor, NamesARendezvousFileOfAnotherJob) {
  const std::string file = path("meet");
  const Process::Environment environment = {{"TUTTI_RENDEZVOUS", "file:" + file}};
  {
    const Listener other = listen_on("127.0.0.1");
    std::ofstream(file + ".rank0") << "tutti-rendezvous-1 127.0.0.1 " << other.port << "\n";
    expect_finding(examine({}, environment).report, "rendezvous", "error", file, "another job");
  }
  expect_finding(examine({}, environment).report, "rendezvous", "warning", file,
                 "no process listens");
  EXPECT_THAT(read(file + ".rank0"), HasSubstr("tutti-rendezvous-1")) << "it is not the doctor's";
}

TEST_F(Doctor, NamesDifferentSettings) {
  const Json report = examine_twice("[ $host = two ] && export TUTTI_DETERMINISTIC=1").report;
  expect_finding(report, "settings", "error", "two", "TUTTI_DETERMINISTIC is 0 on one; 1 on two");
  EXPECT_EQ(state(report, "job"), "skipped");
}

TEST_F(Doctor, NamesAnInvalidSetting) {
  const Json report = examine_twice("[ $host = two ] && export TUTTI_TRANSPORT=carrier").report;
  expect_finding(report, "settings", "error", "two", "TUTTI_TRANSPORT='carrier'");
}

TEST_F(Doctor, NamesAnInvalidSettingOfItsOwn) {
  for (const auto& [name, value] : Process::Environment{{"TUTTI_TIMEOUT", "abc"},
                                                        {"TUTTI_LOG", "loud"},
                                                        {"TUTTI_TCP_STREAMS", "-1"},
                                                        {"TUTTI_LAUNCH_FANOUT", "0"}}) {
    const Json report = examine({}, {{name, value}}).report;
    expect_finding(report, "settings", "error", "", cat(name, "='", value, "'"));
    const auto of_settings = [](const Json& one) { return one["check"] == "settings"; };
    EXPECT_EQ(std::ranges::count_if(report["findings"], of_settings), 1) << report["findings"];
  }
  const std::string file = write("file", "no model");
  expect_finding(examine({}, {{"TUTTI_TUNE_FILE", file}}).report, "settings", "warning", "",
                 "the text is not a cost model");
  expect_finding(examine({}, {{"TUTTI_REPORT", path("nowhere")}}).report, "settings", "warning", "",
                 "does not exist");
}

// The other host's program is a copy with another version.
TEST_F(Doctor, NamesDifferentVersions) {
  std::string pattern;
  for (const char c : std::string(kVersion)) pattern += c == '.' ? "\\." : std::string(1, c);
  std::string other(kVersion);
  other.front() = '9';
  const Json report =
      examine_twice(cat("[ $host = two ] && { [ -x ", path("tutti"), " ] || sed 's/", pattern, "/",
                        other, "/g' $program > ", path("tutti"), "; chmod +x ", path("tutti"),
                        "; program=", path("tutti"), "; }"))
          .report;
  expect_finding(report, "versions", "warning", "two",
                 cat(kVersion, " on one; ", other, " on two"));
}

TEST_F(Doctor, NamesAClockThatIsAhead) {
  const std::string ahead = std::filesystem::absolute("tests/tools/cli/libclock_ahead.so");
  const Json report =
      examine_twice(
          cat("[ $host = two ] && export ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=", ahead))
          .report;
  expect_finding(report, "clock", "error", "two", "s ahead");
  EXPECT_THAT(text(finding(report, "clock"), "what"), HasSubstr("clock is 1"));
}

TEST_F(Doctor, NamesAPortThatIsTaken) {
  const Listener other = listen_on("127.0.0.1");
  const Json report = examine_twice("", {{"MASTER_PORT", cat(other.port)}}).report;
  expect_finding(report, "interfaces", "error", "one", cat("127.0.0.1:", other.port));
}

TEST_F(Doctor, NamesLittleLockedMemory) {
  const Result result =
      start_program({"sh", "-c", "ulimit -l 64; exec \"$0\" doctor -n 1 --json -", tutti()})
          .finish();
  const Json report = Json::parse(result.out);
  EXPECT_EQ(result.code, report["ok"] == true ? 0 : 1) << "an error where there is an RDMA device";
  EXPECT_THAT(text(finding(report, "locked memory"), "what"), HasSubstr("64 KiB"));
}

TEST_F(Doctor, NamesASmallShm) {
  const std::string mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm";
  const Result possible = Process({"unshare", "-m", "sh", "-c", mount}).finish();
  if (possible.code != 0) GTEST_SKIP() << "no mount namespace: " << possible.err;
  const Result result = start_program({"unshare", "-m", "sh", "-c",
                                       mount + " && exec \"$0\" doctor -n 2 --json -", tutti()})
                            .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  const Json report = Json::parse(result.out);
  expect_finding(report, "/dev/shm", "warning", "", "only 64 KiB");
  expect_no_errors(report);
}

TEST_F(Doctor, RefusesInvalidOptions) {
  EXPECT_EQ(run({"doctor", "--hosts", "a:4,b:4", "-n", "3"}).code, 2);
  EXPECT_EQ(run({"doctor", "--hosts", "a,b", "-n", "1"}).code, 1) << "as tutti run does";
}

class DoctorOfNetwork : public TwoHosts {
 protected:
  Json examine(Process::Environment environment = {}) const {
    environment.emplace("TUTTI_RSH", "ip netns exec");
    const Result result =
        run({"doctor", "-n", "4", "--hosts", a_ + "," + b_, "--json", "-"}, std::move(environment));
    const Json report = Json::parse(result.out);
    EXPECT_EQ(result.code, report["ok"] == true ? 0 : 1) << result.err;
    return report;
  }
  // Returns false if this machine does not support the change of the network.
  static bool spoil(const std::string& script) {
    return shell("set -e; PATH=$PATH:/usr/sbin:/sbin\n" + script).code == 0;
  }
};

TEST_F(DoctorOfNetwork, FindsNothingInAGoodNetwork) {
  const Json report = examine();
  expect_no_errors(report);
  for (const char* check : {"interfaces", "connections", "MTU", "clock"}) {
    EXPECT_EQ(state(report, check), "ok") << check;
  }
  // Pairs of ranks in both directions: two on each of the two hosts, and two between the hosts.
  EXPECT_EQ(report["pairs"].size(), 6u);
}

TEST_F(DoctorOfNetwork, NamesAnMtuThatIsWrongAtOneEnd) {
  ASSERT_TRUE(spoil("ip -n " + a_ + " link set cable mtu 9000"));
  expect_finding(examine(), "MTU", "warning", a_ + " (10.199.0.1) to " + b_,
                 "packets of 9000 bytes");
}

TEST_F(DoctorOfNetwork, NamesAnMtuThatIsWrongOnTheWay) {
  // A token bucket drops packets that are larger than the bucket.
  if (!spoil(cat("ip netns exec ", a_,
                 " tc qdisc add dev cable root tbf rate 1gbit burst 1400 latency 50ms"))) {
    GTEST_SKIP() << "no token buckets here";
  }
  const Json report = examine();
  expect_finding(report, "MTU", "error", a_ + " (10.199.0.1) to " + b_,
                 "packets of 1500 bytes, which both interfaces accept, are lost");
  EXPECT_EQ(state(report, "job"), "skipped");
}

TEST_F(DoctorOfNetwork, NamesBlockedPorts) {
  if (!spoil(cat("ip -n ", b_, " rule add ipproto tcp sport 1024-65534 blackhole pref 10"))) {
    GTEST_SKIP() << "no policy routing here";
  }
  const Json report = examine();
  expect_finding(report, "connections", "error", "", "cannot connect");
  bool named = false;
  for (const Json& one : report["findings"]) {
    named = named || text(one, "cause").find("blocked ports") != std::string::npos;
  }
  EXPECT_TRUE(named) << report["findings"];
}

TEST_F(DoctorOfNetwork, NamesAMissingRoute) {
  ASSERT_TRUE(spoil("ip -n " + b_ + " route del 10.199.0.0/24"));
  const Json report = examine();
  expect_finding(report, "connections", "error", b_, "Network is unreachable");
  EXPECT_THAT(text(finding(report, "connections"), "cause"), HasSubstr("no route to it on " + b_));
  int errors = 0;
  for (const Json& one : report["findings"]) errors += one["severity"] == "error" ? 1 : 0;
  EXPECT_EQ(errors, 1) << report["findings"];
}

TEST_F(DoctorOfNetwork, NamesABlackholeRoute) {
  ASSERT_TRUE(spoil("ip -n " + b_ + " route add blackhole 10.199.0.1/32"));
  expect_finding(examine(), "connections", "error", b_, "cannot connect");
}

TEST_F(DoctorOfNetwork, NamesAMissingInterface) {
  const Json report = examine({{"TUTTI_INTERFACE", "eth7"}});
  expect_finding(report, "interfaces", "error", a_, "TUTTI_INTERFACE names 'eth7'");
  EXPECT_THAT(text(finding(report, "interfaces"), "remedy"), HasSubstr("cable (10.199.0.1)"));
}

TEST_F(DoctorOfNetwork, NamesAnInterfaceThatDoesNotReachTheOtherHost) {
  const Json loopback = examine({{"TUTTI_INTERFACE", "lo"}});
  expect_finding(loopback, "interfaces", "error", "127.0.0.1", "cannot connect");
  // Gives each host a second address in a network that the other host is not in.
  ASSERT_TRUE(spoil(cat("for host in ", a_, " ", b_,
                        "; do ip -n $host link add other type veth peer name far; "
                        "ip -n $host link set other up; ip -n $host link set far up; done; ip -n ",
                        a_, " address add 10.198.1.1/24 dev other; ip -n ", b_,
                        " address add 10.198.2.1/24 dev other")));
  const Json report = examine({{"TUTTI_INTERFACE", "other"}});
  expect_finding(report, "interfaces", "error", "10.198.", "cannot connect");
  EXPECT_THAT(text(finding(report, "interfaces"), "cause"),
              HasSubstr("TUTTI_INTERFACE=other selected this network"));
}

TEST_F(DoctorOfNetwork, NamesASlowLink) {
  std::string script;
  for (const std::string& host : {a_, b_}) {
    script += cat("ip netns exec ", host,
                  " tc qdisc replace dev cable root tbf rate 20mbit burst 16k latency 50ms\n");
  }
  if (!spoil(script)) GTEST_SKIP() << "links cannot be made slow here";
  const Json report = examine();
  // Other load on this machine may also make paths within a host slow.
  bool named = false;
  for (const Json& one : report["findings"]) {
    if (one["check"] != "links") continue;
    EXPECT_EQ(one["severity"], "warning");
    const std::string where = text(one, "where");
    named = named || (where.find(a_) != where.npos && where.find(b_) != where.npos &&
                      text(one, "what").find("a slow link") != std::string::npos);
  }
  EXPECT_TRUE(named) << report["findings"];
}

}  // namespace
}  // namespace tutti::tool
