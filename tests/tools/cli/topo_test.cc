// Tests `tutti topo`: graphs from files and from this host, with the rings and trees that fit them.
#include <algorithm>
#include <numeric>
#include <pugixml.hpp>
#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two NUMA nodes, each with two GPUs and a card behind a switch. NVLinks connect pairs of GPUs.
constexpr const char* kFour = R"(
node numa0 numa_node
node numa1 numa_node
node switch0 pci_switch
node switch1 pci_switch
node gpu0 gpu
node gpu1 gpu
node gpu2 gpu
node gpu3 gpu
node card0 nic
node card1 nic
node net network_switch
link numa0 numa1 system 10GB/s 0.5us
link numa0 switch0 pci 24GB/s 0.3us
link numa1 switch1 pci 24GB/s 0.3us
link gpu0 switch0 pci 24GB/s 0.3us
link gpu1 switch0 pci 24GB/s 0.3us
link gpu2 switch1 pci 24GB/s 0.3us
link gpu3 switch1 pci 24GB/s 0.3us
link card0 switch0 pci 24GB/s 0.3us
link card1 switch1 pci 24GB/s 0.3us
link card0 net network 100Gbit/s 1us
link card1 net network 100Gbit/s 1us
link gpu0 gpu1 nvlink 4x20GB/s 0.5us
link gpu2 gpu3 nvlink 4x20GB/s 0.5us
)";

class Topo : public Cli {};

TEST_F(Topo, ShowsAMachineFromAFile) {
  const std::string json = path("out.json");
  const std::string svg = path("out.svg");
  const Result result =
      run({"topo", "--from", write("four.txt", kFour), "--json", json, "--svg", svg});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("2 NUMA nodes, 4 GPUs, 2 cards"), HasSubstr("1 ring of 10 GB/s"),
                    HasSubstr("paths up to NVL: no improvement"), HasSubstr("card0 (PIX)"),
                    HasSubstr("bounded by 2 directions of system links of 10 GB/s")));
  const Json report = Json::parse(read(json));
  EXPECT_EQ(report["nodes"].size(), 11u);
  EXPECT_EQ(report["links"].size(), 13u);
  ASSERT_EQ(report["rings"].size(), 1u);
  auto ring = report["rings"][0].get<std::vector<int>>();
  std::ranges::sort(ring);
  EXPECT_THAT(ring, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(report["bandwidth_GBps"][0], 10.0);
  EXPECT_EQ(report["paths"][0][1], "NVL");
  EXPECT_EQ(report["paths"][0][2], "SYS");
  for (const Json& tree : report["trees"]) {
    const auto parents = tree.get<std::vector<int>>();
    EXPECT_EQ(std::ranges::count(parents, -1), 1);
  }
  pugi::xml_document picture;
  ASSERT_TRUE(picture.load_file(svg.c_str()));
  EXPECT_GE(picture.select_nodes("//rect").size(), 11u);
}

TEST_F(Topo, ReadsItsOwnFiles) {
  const std::string first = path("first.json");
  const std::string second = path("second.json");
  ASSERT_EQ(run({"topo", "--from", write("four.txt", kFour), "--json", first}).code, 0);
  ASSERT_EQ(run({"topo", "--from", first, "--json", second}).code, 0);
  EXPECT_EQ(read(first), read(second));
}

TEST_F(Topo, ConnectsHostsByTheirCards) {
  const std::string json = path("out.json");
  const Result result =
      run({"topo", "--from", write("four.txt", kFour), "--repeat", "3", "--json", json});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 hosts, each with 2 NUMA nodes, 4 GPUs, 2 cards"));
  const Json report = Json::parse(read(json));
  EXPECT_EQ(report["ranks"].size(), 12u);
  for (const Json& ring : report["rings"]) EXPECT_EQ(ring.size(), 12u);
  for (const Json& cards : report["ring_cards"]) EXPECT_EQ(cards.size(), 3u);
}

TEST_F(Topo, ShowsThisHost) {
  const Result result = run({"topo"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 host"), HasSubstr("ring 0: 0")));
}

TEST_F(Topo, ShowsTheRequestedNumberOfRanks) {
  const Result result = run({"topo", "--from", "synthetic:package:2 core:8 pu:1", "-n", "4"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("core12"), HasSubstr("ring 0: ")));
}

TEST_F(Topo, MeasuresPairsAndMakesAGraphOfThem) {
  const std::string json = path("measured.json");
  const Result result = run({"topo", "--measure", "-n", "4", "--json", json});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("4 ranks over shm"), HasSubstr("latency"),
                                HasSubstr("all neighbours concurrently")));
  const Json report = Json::parse(read(json));
  ASSERT_EQ(report["measured"].size(), 12u);
  for (const Json& pair : report["measured"]) {
    EXPECT_GT(pair["bandwidth_GBps"], 0.0);
    EXPECT_GT(pair["latency_us"], 0.0);
  }
  EXPECT_EQ(report["measured_together"].size(), 4u);
  const Result again = run({"topo", "--from", json});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("rank3"), HasSubstr("ring 0: 0 ")));
}

TEST_F(Topo, RefusesBadFiles) {
  const auto refused = [&](const std::string& text) {
    const Result result = run({"topo", "--from", write("bad", text), "--json", path("none.json")});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(path("none.json")));
    return result.err;
  };
  EXPECT_THAT(refused("<system version=\"1\">\n<gpu/>\n</system>"), HasSubstr("line 2"));
  EXPECT_THAT(refused("node a gpu\nlink a b pci 1GB/s\n"), HasSubstr("line 2"));
  EXPECT_THAT(refused("{}"), HasSubstr("nodes"));
  EXPECT_THAT(refused(""), HasSubstr("empty"));
  EXPECT_THAT(refused("node a gpu\nnode b gpu\n"), HasSubstr("no path from a to b"));
  EXPECT_THAT(run({"topo", "--from", path("nowhere.xml")}).err, HasSubstr("nowhere.xml"));
  EXPECT_THAT(run({"topo", "--from", "synthetic:nonsense:9"}).err, HasSubstr("nonsense"));
}

}  // namespace
}  // namespace tutti::tool
