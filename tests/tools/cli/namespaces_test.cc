// Tests jobs on two hosts (network namespaces), and in a mount namespace with a tiny /dev/shm.
// Skipped if this process may not create namespaces.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/path.h"
#include "base/text.h"
#include "collectives/cost/cost_model.h"
#include "tests/support/fabrics.h"
#include "tests/tools/cli/cli.h"
#include "tests/tools/cli/two_hosts.h"
#include "transport/paths/fabrics.h"

namespace tutti::tool {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST_F(TwoHosts, RunABenchmark) {
  for (const std::string transport : {"auto", "tcp"}) {
    for (const std::string collective : {"all_reduce", "all_gather", "barrier"}) {
      SCOPED_TRACE(cat(collective, ' ', transport));
      const std::string file = path("result.json");
      const Result result = start_tutti_on_both(4, {"bench", collective, "--max", "1M", "--factor",
                                                    "32", "--transport", transport, "--json", file})
                                .finish();
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_THAT(result.err, IsQuiet());
      const Json document = Json::parse(read(file));
      EXPECT_EQ(document["ranks"], 4);
      EXPECT_EQ(document["transport"], transport == "auto" ? "shm+tcp" : "tcp");
      EXPECT_EQ(document["results"].size(), collective == "barrier" ? 1u : 4u);
      for (const Json& row : document["results"]) EXPECT_EQ(row["wrong"], 0) << document;
    }
  }
}

TEST_F(TwoHosts, GetRanksInTurn) {
  const std::string file = path("result.json");
  const Result result =
      start({"run", "--hosts", a_ + ":2," + b_ + ":2", "--map-by", "node", "--", tutti(), "bench",
             "all_reduce", "--max", "64K", "--factor", "128", "--json", file},
            {{"TUTTI_RSH", "ip netns exec"}})
          .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  const Json document = Json::parse(read(file));
  EXPECT_EQ(document["ranks"], 4);
  for (const Json& row : document["results"]) EXPECT_EQ(row["wrong"], 0) << document;
}

// Two pipeline stages, one per host, with one and two tensor ranks: the activations and their
// gradients cross the cable once, in as many parts as there are tensor ranks.
TEST_F(TwoHosts, StagesDivideTransfersOverTensorRanks) {
  write("text", std::string(4096, 'a') + " text to learn from " + std::string(4096, 'b'));
  const auto sent = [&] {
    return std::stod(
        shell(cat("ip netns exec ", a_, " cat /sys/class/net/cable/statistics/tx_bytes")).out);
  };
  // 20 steps x 8 samples x 256 tokens x 128 values of f32, from the first stage to the second one.
  constexpr double kForward = 20.0 * 8 * 256 * 128 * 4;
  for (const int tensor : {1, 2}) {
    const std::string file = path(cat("steps-", tensor));
    const double before = sent();
    const std::string command =
        cat("train --data ", path("text"), " --json ", file, " --dp 1 --pp 2 --tp ", tensor,
            " --model gpt2 --layers 2 --heads 2 --width 128 --context 256 --untied --batch 8",
            " --micro-batch 4 --steps 20 --validation-samples 1");
    const Result result = start_tutti_on_both(2 * tensor, split(command, ' ')).finish();
    ASSERT_EQ(result.code, 0) << result.err;
    const double crossed = sent() - before;
    EXPECT_GT(crossed, kForward) << tensor;
    EXPECT_LT(crossed, 1.25 * kForward) << tensor << ": not once for each tensor rank";
    const Json step = Json::parse(split(read(file), '\n').front());
    EXPECT_EQ(step["bytes_sent_by_axis"]["pipeline"], kForward / 20 / tensor);
  }
}

// tutti chaos disconnects the cable twice: temporarily, which only costs time, and permanently.
TEST_F(TwoHosts, ChaosDisconnectsTheCable) {
  const std::string link = a_ + "/cable";
  const std::string plan = write("plan", cat(R"({"trials":[
      {"class":"cut","faults":[{"kind":"cut","link":")",
                                             link, R"(","at_ms":50,"for_ms":1500}]},
      {"class":"sever","faults":[{"kind":"cut","link":")",
                                             link, R"(","at_ms":50}]}]})"));
  const Result result = run({"chaos", "--plan", plan,           "--within",    "20",    "--",
                             tutti(), "run",    "--hosts",      a_ + "," + b_, "-n",    "2",
                             "--",    tutti(),  "bench",        "all_reduce",  "--min", "4",
                             "--max", "4",      "--iterations", "20000"},
                            {{"TUTTI_RSH", "ip netns exec"}, {"TUTTI_NETWORK_TIMEOUT", "4"}});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("cut +1 +0 +1 +0 +0 "));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("sever +1 +0 +0 +1 +0 "));
}

TEST_F(TwoHosts, RanksReportTheirRacks) {
  const std::string hosts = path("hosts");
  std::ofstream(hosts) << a_ << " slots=1 rack=row0.left\n" << b_ << " slots=2 rack=row0.right\n";
  const std::string file = path("graph.json");
  const Result result = start({"run", "--hostfile", hosts, "-n", "3", "--no-prefix", "--", tutti(),
                               "topo", "--json", file},
                              {{"TUTTI_RSH", "ip netns exec"}, {"TUTTI_RACK", "the-launcher's"}})
                            .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  const Json document = Json::parse(read(file));
  const std::vector<std::string> racks = {"row0.left", "row0.right", "row0.right"};
  ASSERT_THAT(document["places"], SizeIs(3));
  for (size_t rank = 0; rank < racks.size(); ++rank) {
    const Json& place = document["places"][rank];
    EXPECT_EQ(place["rack"], racks[rank]);
    const Json& node = document["nodes"][place["node"].get<size_t>()];
    EXPECT_EQ(node["host"], rank == 0 ? 0 : 1);
  }
  std::vector<std::string> switches;
  for (const Json& node : document["nodes"]) {
    if (node["kind"] == "network_switch") switches.push_back(node["name"].get<std::string>());
  }
  EXPECT_THAT(switches, UnorderedElementsAre("network", "row0", "row0.left", "row0.right"));
  EXPECT_THAT(result.out, HasSubstr("row0.right"));
}

TEST_F(TwoHosts, MeasuredLinksAreStoredInTheCosts) {
  const std::string costs = path("costs.json");
  const Result result =
      start(
          {"topo", "--measure", "--tune", "--hosts", a_ + "," + b_, "-n", "2"},
          {{"TUTTI_RSH", "ip netns exec"}, {"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_TUNE_FILE", costs}})
          .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  const CostModel model = parse_cost_model(read(costs));
  const LinkCosts before = CostModel::defaults().tcp;
  EXPECT_GT(model.tcp.wire, 0);
  EXPECT_NE(model.tcp.wire, before.wire);
  EXPECT_NE(model.tcp.latency, before.latency);
  EXPECT_EQ(model.tcp.send, before.send) << "of which pairs tell nothing";
}

// The costs are as `tutti tune --hosts` would have measured them.
TEST_F(TwoHosts, AutoSelectsTheFastestMeasuredFabric) {
  if (const std::string why = testing::lacks("ofi"); !why.empty()) GTEST_SKIP() << why;
  CostModel model = CostModel::defaults();
  LinkCosts& ofi = model.own_link(PathClass::ofi);
  for (double* const cost : {&ofi.call, &ofi.send, &ofi.recv, &ofi.latency}) *cost /= 10;
  std::ofstream(path("tune.json")) << to_json(model);
  const auto transport = [&](Process::Environment environment) {
    const std::string file = path("result.json");
    environment["TUTTI_RSH"] = "ip netns exec";
    const Result result = start({"run", "--hosts", a_ + "," + b_, "-n", "2", "--", tutti(), "bench",
                                 "all_reduce", "--max", "1K", "--json", file},
                                environment)
                              .finish();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
    const Json document = Json::parse(read(file));
    for (const Json& row : document["results"]) EXPECT_EQ(row["wrong"], 0) << document;
    return document["transport"].get<std::string>();
  };
  EXPECT_EQ(transport({{"TUTTI_TUNE_FILE", path("tune.json")}}), "ofi");
  if (fabric_candidates().empty()) {
    EXPECT_EQ(transport({{"TUTTI_TUNE_FILE", "none"}}), "tcp");
  }
}

// mpirun and mpiexec start a daemon on each host, which forwards the ranks' messages. Each host has
// its own name, because daemons of Open MPI create a directory of that name in /tmp, which fails if
// two daemons do so at the same time.
TEST_F(TwoHosts, WorkWithOtherLaunchers) {
  const std::string shell = path("rsh");
  std::ofstream(shell)
      << "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n"
         "exec ip netns exec $host unshare --uts "
         "sh -c \"echo $host > /proc/sys/kernel/hostname; $*\"\n";
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const std::vector<Words> launchers = {
      {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", shell,
       "--mca", "oob_tcp_if_include", "cable", "--mca", "orte_keep_fqdn_hostnames", "1", "--host",
       a_ + ":2," + b_ + ":2", "-n", "4"},
      {"mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", shell, "-iface", "cable", "-hosts",
       a_ + "," + b_, "-n", "4"}};
  for (const Words& launcher : launchers) {
    if (find_program(launcher.front()).empty()) continue;
    SCOPED_TRACE(launcher.front());
    const std::string file = path("result.json");
    Words words = {"ip", "netns", "exec", a_};
    words.insert(words.end(), launcher.begin(), launcher.end());
    words.insert(words.end(), {tutti(), "bench", "all_reduce", "--max", "1K", "--json", file});
    const Result result = start_program(words).finish();
    ASSERT_EQ(result.code, 0) << result.err;
    const Json document = Json::parse(read(file));
    EXPECT_EQ(document["ranks"], 4);
    EXPECT_EQ(document["transport"], "shm+tcp");
    for (const Json& row : document["results"]) EXPECT_EQ(row["wrong"], 0) << document;
  }
}

TEST_F(TwoHosts, SharedMemoryAloneDoesNotReachTheOtherHost) {
  const Result result =
      start_tutti_on_both(2, {"bench", "all_reduce", "--max", "64", "--transport", "shm"}).finish();
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("shm"));
  EXPECT_THAT(result.err, HasSubstr("remedy"));
}

TEST_F(TwoHosts, RunATraining) {
  const std::string text = write_text();
  const Words arguments = {"train",   "--data", text,       "--steps", "10",
                           "--batch", "96",     "--hidden", "32",      "--json"};
  const auto losses = [](const std::string& file) {
    std::vector<double> found;
    for (const std::string& line : split(read(file), '\n')) {
      const Json object = Json::parse(line);
      if (object.contains("step")) found.push_back(object["loss"]);
    }
    return found;
  };
  Words here = arguments;
  here.insert(here.end(), {path("here"), "--ranks", "1"});
  EXPECT_EQ(run(here).code, 0);
  Words across = arguments;
  across.push_back(path("across"));
  const Result result = start_tutti_on_both(4, across).finish();
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<double> expected = losses(path("here"));
  const std::vector<double> found = losses(path("across"));
  ASSERT_THAT(expected, SizeIs(10));
  ASSERT_THAT(found, SizeIs(10));
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]);
}

TEST_F(TwoHosts, RankKilledOnOneEndsBoth) {
  for (const int rank : {0, 3}) {
    SCOPED_TRACE(rank);
    Process job = start_tutti_on_both(
        4, {"bench", "all_reduce", "--min", "1M", "--max", "1M", "--iterations", "1000000"});
    ASSERT_THAT(job.read_lines(2), SizeIs(2)) << "the header";
    const pid_t pid = process_of_rank(rank);
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGKILL);
    const Result result = job.finish(kEndsWithin);
    EXPECT_EQ(result.code, 128 + SIGKILL);
    const std::string& host = rank == 0 ? a_ : b_;
    EXPECT_THAT(result.err, EndsWith(cat("tutti run: rank ", rank, " (", host, ", pid ", pid,
                                         ") was killed by signal 9 (Killed)\n")));
    // The survivors also print their own messages.
    EXPECT_THAT(result.err, HasSubstr(cat("tutti: rank ", rank, " (")));
    EXPECT_THAT(processes(), IsEmpty());
  }
}

TEST_F(TwoHosts, NothingOutlivesALauncherThatIsKilled) {
  Process job = start_tutti_on_both(
      4, {"bench", "all_reduce", "--min", "1M", "--max", "1M", "--iterations", "1000000"});
  ASSERT_THAT(job.read_lines(2), SizeIs(2)) << "the header";
  ASSERT_GE(processes().size(), 7u) << "4 ranks, 2 agents, the launcher";
  ::kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.finish(kEndsWithin).code, 128 + SIGKILL);
  for (const pid_t pid : processes()) Watched(pid).wait_for_end();
  EXPECT_THAT(processes(), IsEmpty());
}

// Debian's convention: a host's own name resolves to 127.0.1.1 there, and to its address elsewhere.
class OwnNameIsLoopback : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (IsSkipped()) return;
    const Result named = shell(cat("set -e; for host in ", a_, " ", b_,
                                   "; do mkdir -p /etc/netns/$host; done; own=$(hostname); "
                                   "echo 127.0.1.1 $own > /etc/netns/",
                                   a_, "/hosts; echo 10.199.0.1 $own > /etc/netns/", b_, "/hosts"));
    if (named.code != 0) GTEST_SKIP() << "no names of a namespace's own: " << named.err;
  }
  void TearDown() override {
    shell(cat("rm -rf /etc/netns/", a_, " /etc/netns/", b_, "; rmdir /etc/netns"));
    TwoHosts::TearDown();
  }
};

TEST_F(OwnNameIsLoopback, RanksOfBothHostsReachRankZero) {
  std::string own = shell("hostname").out;
  own.pop_back();
  const auto rank = [&](const std::string& host, int number) {
    return start_program({"ip", "netns", "exec", host, tutti(), "bench", "barrier"},
                         {{"RANK", cat(number)},
                          {"WORLD_SIZE", "3"},
                          {"MASTER_ADDR", own},
                          {"MASTER_PORT", "29500"},
                          {"TUTTI_TOKEN", "a token that is ours"},
                          {"TUTTI_INIT_TIMEOUT", "20"}});
  };
  Process zero = rank(a_, 0);
  Process near = rank(a_, 1);
  Process far = rank(b_, 2);
  for (Process* process : {&zero, &near, &far}) {
    const Result result = process->finish();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
  }
}

using SmallShm = Cli;

TEST_F(SmallShm, SixtyFourKilobytesSuffice) {
  const std::string mount =
      "mount -t tmpfs -o size=64k tmpfs /dev/shm && test $(df -k --output=size /dev/shm | tail -1) "
      "-le 64";
  const Result possible = Process({"unshare", "-m", "sh", "-c", mount}).finish();
  if (possible.code != 0) GTEST_SKIP() << "no mount namespace: " << possible.err;
  const Result result =
      start_program({"unshare", "-m", "sh", "-c",
                     mount + " && \"$0\" bench all_reduce -n 4 --transport shm --max 1M --factor 32"
                             " --json \"$1\" > /dev/null && ls -A /dev/shm",
                     tutti(), path("result.json")})
          .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty()) << "left in /dev/shm";
  const Json document = Json::parse(read(path("result.json")));
  EXPECT_EQ(document["transport"], "shm");
  ASSERT_THAT(document["results"], SizeIs(4));
  for (const Json& row : document["results"]) EXPECT_EQ(row["wrong"], 0) << document;
}

}  // namespace
}  // namespace tutti::tool
