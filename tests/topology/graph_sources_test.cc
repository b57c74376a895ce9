#include "topology/graph_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/test_data.h"
#include "topology/bus_address.h"
#include "topology/graph_json.h"
#include "topology/graph_report.h"
#include "topology/graph_text.h"
#include "topology/hwloc_graph.h"
#include "topology/nccl_xml.h"
#include "topology/route.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

int count(const Graph& graph, NodeKind kind) {
  return static_cast<int>(std::ranges::count(graph.nodes(), kind, &GraphNode::kind));
}

template <typename Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "it was taken";
}

// ---- NCCL

constexpr const char* kTwoGpus = R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80">
          <nvlink target="0000:21:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:12:00.0" class="0x020700" link_speed="8 GT/s" link_width="8">
        <nic><net name="mlx5_0" dev="0" speed="100000" latency="1.5"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:21:00.0" class="0x030200" link_speed="" link_width="0">
      <gpu dev="0" sm="80">
        <nvlink target="0000:11:00.0" count="4" tclass="0x030200"/>
      </gpu>
    </pci>
  </cpu>
</system>
)";

TEST(NcclXml, ReadsGpusCardsAndTheirLinks) {
  const Graph graph = parse_nccl_topology(kTwoGpus, "two.xml");
  EXPECT_EQ(count(graph, NodeKind::numa_node), 2);
  EXPECT_EQ(count(graph, NodeKind::pci_switch), 1);
  ASSERT_THAT(graph.rank_nodes(), SizeIs(2));
  const int gpu0 = graph.rank_nodes()[0];
  const int gpu1 = graph.rank_nodes()[1];
  EXPECT_EQ(graph.node(gpu0).name, "gpu0");
  const Route nvlink = route(graph, gpu0, gpu1);
  EXPECT_EQ(nvlink.type, PathType::NVL);
  EXPECT_DOUBLE_EQ(nvlink.GBps, 80);  // both ends list the link; it counts once
  double network = 0;
  double between = 0;
  double slot = 0;
  for (const GraphLink& link : graph.links()) {
    if (link.kind == LinkClass::network) network = link.GBps;
    if (link.kind == LinkClass::system) between = link.GBps;
    if (link.kind == LinkClass::pci && (link.from == gpu0 || link.to == gpu0)) slot = link.GBps;
  }
  EXPECT_DOUBLE_EQ(network, 12.5);
  EXPECT_DOUBLE_EQ(between, 10);
  EXPECT_DOUBLE_EQ(slot, 24) << "what is not told is what such a GPU is made for";
}

TEST(NcclXml, NumbersGpusByBusIfTheFileDoesNot) {
  const Graph graph = parse_nccl_topology(
      R"(<system version="1"><cpu numaid="0">
        <pci busid="0000:90:00.0" class="0x030200"/><pci busid="0000:20:00.0" class="0x030200"/>
        <pci busid="0000:30:00.0" class="0x010802"/></cpu></system>)",
      "cloud.xml");
  ASSERT_THAT(graph.rank_nodes(), SizeIs(2));
  EXPECT_EQ(graph.node(graph.rank_nodes()[0]).name, "gpu0");
  EXPECT_EQ(graph.rank_nodes()[0], graph.rank_nodes()[1] + 1) << "the later one in the file";
}

// The file has an element for each NVLink switch. The graph has one node for all of them.
TEST(NcclXml, AddsUpLinksToSeveralSwitches) {
  std::string xml = R"(<system version="1"><cpu numaid="0">)";
  for (int i = 0; i < 2; ++i) {
    xml +=
        cat("<pci busid=\"0000:1", i, ":00.0\" class=\"0x030200\"><gpu dev=\"", i, "\" sm=\"80\">");
    for (int j = 0; j < 6; ++j) {
      xml += cat("<nvlink target=\"0000:c", j, ":00.0\" count=\"2\" tclass=\"0x068000\"/>");
    }
    xml += "</gpu></pci>";
  }
  const Graph graph = parse_nccl_topology(xml + "</cpu></system>", "switches.xml");
  EXPECT_EQ(count(graph, NodeKind::nvlink_switch), 1);
  const Route way = route(graph, graph.rank_nodes()[0], graph.rank_nodes()[1]);
  EXPECT_EQ(way.type, PathType::NVL);
  EXPECT_DOUBLE_EQ(way.GBps, 12 * 20);
}

// NVML, the kernel and lspci spell the same PCI address differently.
TEST(NcclXml, MatchesBusIdsInEverySpelling) {
  EXPECT_EQ(bus_address("00000000:0A:1f.7"), "0000:0a:1f.7");
  EXPECT_EQ(bus_address("0A:00.0"), "0000:0a:00.0");
  EXPECT_EQ(bus_address("00010000:01:00.0"), "10000:01:00.0");
  EXPECT_EQ(bus_address("fffffff:ffff:ff"), "fffffff:ffff:ff");
  EXPECT_EQ(bus_address(""), "");
  const std::string usual = "target=\"0000:";
  for (const char* domain : {"target=\"00000000:", "target=\"0:", "target=\""}) {
    std::string xml = kTwoGpus;
    for (size_t at = 0; (at = xml.find(usual, at)) != std::string::npos;) {
      xml.replace(at, usual.size(), domain);
    }
    const Graph graph = parse_nccl_topology(xml, "spelling.xml");
    const Route way = route(graph, graph.rank_nodes()[0], graph.rank_nodes()[1]);
    EXPECT_EQ(way.type, PathType::NVL) << domain;
    EXPECT_DOUBLE_EQ(way.GBps, 80) << domain;
  }
}

TEST(NcclXml, TreatsUnknownValuesAsAbsent) {
  const auto with = [](const std::string& what, const std::string& instead) {
    std::string xml = kTwoGpus;
    xml.replace(xml.find(what), what.size(), instead);
    return to_json(parse_nccl_topology(xml, "unknown.xml"));
  };
  EXPECT_EQ(with(" speed=\"100000\"", " speed=\"-1\""), with(" speed=\"100000\"", ""));
  EXPECT_EQ(with(" latency=\"1.5\"", " latency=\"-1\""), with(" latency=\"1.5\"", ""));
  for (const char* width : {"-1", "0", "255"}) {
    EXPECT_EQ(with(" link_width=\"8\"", cat(" link_width=\"", width, "\"")),
              with(" link_width=\"8\"", ""));
  }
  EXPECT_EQ(with("\"16.0 GT/s PCIe\"", "\"16GT/s\""), with("", ""));
  EXPECT_EQ(with("class=\"0x020700\"", "class=\"020700\""), with("", ""));
  EXPECT_EQ(with("sm=\"80\"", "sm=\"-1\""), with("sm=\"80\"", ""));
}

// A file may list switches as PCI devices, and omit the target class of a link.
TEST(NcclXml, FindsSwitchesByTheirBus) {
  const Graph graph = parse_nccl_topology(
      R"(<system version="1"><cpu numaid="0">
        <pci busid="0000:10:00.0" class="0x030200"><gpu dev="0" sm="80">
          <nvlink target="0000:C0:00.0" count="2"/></gpu></pci>
        <pci busid="0000:c0:00.0" class="0x068000"/></cpu></system>)",
      "switch.xml");
  EXPECT_EQ(count(graph, NodeKind::nvlink_switch), 1);
}

std::string warnings_of(const std::string& xml, Graph* graph = nullptr) {
  ::testing::internal::CaptureStderr();
  const Graph read = parse_nccl_topology(xml, "topo.xml");
  if (graph != nullptr) *graph = read;
  return ::testing::internal::GetCapturedStderr();
}

// Returns a host in which each GPU reports `links` NVLinks to each other GPU.
std::string meshed(int gpus, int links, int sm = 90) {
  std::string xml = "<system version=\"1\"><cpu numaid=\"0\">\n";
  for (int i = 0; i < gpus; ++i) {
    xml += cat("<pci busid=\"0000:0", i, ":00.0\" class=\"0x030200\"><gpu dev=\"", i, "\" sm=\"",
               sm, "\">");
    for (int j = 0; j < gpus; ++j) {
      if (i != j) xml += cat("<nvlink target=\"0000:0", j, ":00.0\" count=\"", links, "\"/>");
    }
    xml += "</gpu></pci>\n";
  }
  return xml + "</cpu></system>";
}

TEST(NcclXml, TreatsMoreNvlinksThanPortsAsASwitch) {
  Graph graph;
  const std::string told = warnings_of(meshed(8, 18), &graph);
  EXPECT_THAT(told, HasSubstr("topo.xml, line 2: gpu0 has 126 NVLinks, but this model has 18"));
  int to_switch = 0;
  for (const GraphLink& link : graph.links()) {
    if (link.kind != LinkClass::nvlink) continue;
    EXPECT_EQ(graph.node(link.to).kind, NodeKind::nvlink_switch);
    EXPECT_DOUBLE_EQ(link.GBps, 18 * 20.6);
    ++to_switch;
  }
  EXPECT_EQ(to_switch, 8);
  EXPECT_EQ(warnings_of(meshed(3, 9)), "") << "as many as there are";
  EXPECT_THAT(warnings_of(meshed(4, 3, 70)), HasSubstr("gpu0 has 9 NVLinks, but this model has 6"));
}

TEST(NcclXml, IgnoresAbsurdSpeeds) {
  const auto host = [](const std::string& link, const std::string& port) {
    return "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" "
           "class=\"0x020000\" " +
           link + "><nic><net name=\"a\" dev=\"0\" speed=\"" + port +
           "\"/></nic></pci></cpu></system>";
  };
  const auto slowest = [](const Graph& graph, LinkClass kind) {
    for (const GraphLink& link : graph.links()) {
      if (link.kind == kind) return link.GBps;
    }
    return 0.0;
  };
  Graph graph;
  const std::string wide = "link_speed=\"16 GT/s\" link_width=\"16\"";
  EXPECT_EQ(warnings_of(host(wide, "200000"), &graph),
            "tutti warning: topo.xml: the file lists no GPUs: NCCL adds those that it finds at run "
            "time\n");
  EXPECT_DOUBLE_EQ(slowest(graph, LinkClass::network), 25);
  EXPECT_THAT(warnings_of(host(wide, "1000000000"), &graph), HasSubstr("the slot's speed is used"));
  EXPECT_DOUBLE_EQ(slowest(graph, LinkClass::network), 24);
  EXPECT_THAT(warnings_of(host("link_speed=\"5000 GT/s\" link_width=\"16\"", "200000"), &graph),
              HasSubstr("exceeds any PCI Express generation"));
  EXPECT_DOUBLE_EQ(slowest(graph, LinkClass::pci), 12);
  EXPECT_THAT(warnings_of(host("link_speed=\"5 GT/s\" link_width=\"16\"", "100000")),
              HasSubstr("16 lanes at 5 GT/s"));
}

TEST(NcclXml, ReportsGpusWithoutLinks) {
  std::string xml = meshed(3, 6);
  const size_t last = xml.find("<gpu dev=\"2\"");
  for (size_t at = xml.find("<nvlink", last); at != xml.npos; at = xml.find("<nvlink", last)) {
    xml.erase(at, xml.find("/>", at) + 2 - at);
  }
  EXPECT_EQ(warnings_of(xml), "") << "the others tell of links to it" << xml;
  for (const char* target : {"<nvlink target=\"0000:02:00.0\" count=\"6\"/>"}) {
    for (size_t at = xml.find(target); at != xml.npos; at = xml.find(target)) {
      xml.erase(at, std::string(target).size());
    }
  }
  EXPECT_THAT(warnings_of(xml), HasSubstr("gpu2 has neither NVLink nor xGMI"));
  EXPECT_THAT(
      warnings_of("<system><cpu numaid=\"0\"><pci busid=\"1:0.0\" class=\"0x030200\"/></cpu></"
                  "system>"),
      HasSubstr("lists PCI devices only: NCCL adds"));
}

TEST(NcclXml, TwoGpusMayBeOneDeviceOnPci) {
  Graph graph;
  warnings_of(R"(<system version="1"><cpu numaid="0">
  <pci busid="0000:01:00.0" class="0x038000" link_speed="16 GT/s" link_width="16">
    <gpu dev="0" gcn="gfx950"><xgmi target="0000:02:00.0" count="1"/></gpu>
    <gpu dev="1" gcn="gfx950"/></pci>
  <pci busid="0000:02:00.0" class="0x038000"><gpu dev="2" gcn="gfx950"/></pci>
  </cpu></system>)",
              &graph);
  EXPECT_EQ(graph.rank_nodes().size(), 3u);
  for (const GraphLink& link : graph.links()) {
    if (link.kind == LinkClass::xgmi) {
      EXPECT_DOUBLE_EQ(link.GBps, 48);
    }
  }
}

TEST(NcclXml, RefusesBadFilesWithTheirLine) {
  const auto refused = [](const std::string& what, const std::string& instead) {
    std::string xml = kTwoGpus;
    xml.replace(xml.find(what), what.size(), instead);
    return refusal([&] { (void)parse_nccl_topology(xml, "bad.xml"); });
  };
  EXPECT_THAT(refused("8 GT/s\" link_width=\"16\"", "fast\" link_width=\"16\""),
              AllOf(HasSubstr("fast"), HasSubstr("bad.xml, line 3")));
  EXPECT_THAT(refused("count=\"4\"", "count=\"four\""),
              AllOf(HasSubstr("count"), HasSubstr("line 6")));
  EXPECT_THAT(refused("count=\"4\"", "count=\"-1\""), HasSubstr("line 6"));
  EXPECT_THAT(refused("dev=\"0\" sm", "dev=\"1\" sm"),
              AllOf(HasSubstr("dev"), HasSubstr("line 16")));
  EXPECT_THAT(refused("0000:21:00.0\" class", "0000:11:00.0\" class"),
              AllOf(HasSubstr("two GPUs"), HasSubstr("line 15")));
  EXPECT_THAT(refused("numaid=\"1\"", "numaid=\"0\""),
              AllOf(HasSubstr("twice"), HasSubstr("line 14")));
  EXPECT_THAT(refused("speed=\"100000\"", "speed=\"-3\""), HasSubstr("line 10"));
  EXPECT_THAT(refused("busid=\"0000:10:00.0\"", ""),
              AllOf(HasSubstr("busid"), HasSubstr("line 3")));
  EXPECT_THAT(refused("</cpu>", ""), AllOf(HasSubstr("XML"), HasSubstr("line")));
  EXPECT_THAT(refusal([] { (void)parse_nccl_topology("<graphs/>", "bad.xml"); }),
              HasSubstr("<system>"));
}

TEST(NcclXml, FilesCutAnywhereAreRefused) {
  const std::string xml = kTwoGpus;
  for (size_t length = 0; length + 2 < xml.size(); length += 7) {
    EXPECT_THROW((void)parse_nccl_topology(xml.substr(0, length), "cut.xml"), Error) << length;
  }
}

// ---- hwloc

TEST(HwlocGraph, DescribesHostsThatDoNotExist) {
  const Graph graph = synthetic_host_graph("package:2 numa:2 core:3 pu:2");
  EXPECT_EQ(count(graph, NodeKind::numa_node), 4);
  EXPECT_EQ(count(graph, NodeKind::package), 2);
  ASSERT_THAT(graph.rank_nodes(), SizeIs(12));
  const auto type = [&](int from, int to) {
    return route(graph, graph.rank_nodes()[static_cast<size_t>(from)],
                 graph.rank_nodes()[static_cast<size_t>(to)])
        .type;
  };
  EXPECT_EQ(type(0, 2), PathType::PHB);
  EXPECT_EQ(type(0, 3), PathType::SYS);
  EXPECT_EQ(type(0, 11), PathType::SYS);
}

TEST(HwlocGraph, HasThisHostsCores) {
  const Graph graph = graph_of_this_host(Cores::all);
  EXPECT_GE(graph.rank_nodes().size(), 1u);
  EXPECT_GE(count(graph, NodeKind::core), 1);
}

TEST(HwlocGraph, RefusesBadFilesWithTheirLine) {
  const auto refused = [](const std::string& xml) {
    return refusal([&] { (void)parse_hwloc_xml(xml, "bad.xml"); });
  };
  EXPECT_THAT(refused("<topology version=\"2.0\">\n<object"), HasSubstr("bad.xml, line"));
  EXPECT_THAT(refused("<topology version=\"2.0\">\n</topology>"), HasSubstr("no <object>"));
  EXPECT_THAT(refused("<topology version=\"2.0\">\n<object os_index=\"0\"/>\n</topology>"),
              AllOf(HasSubstr("no type"), HasSubstr("line 2")));
  EXPECT_THAT(refused("<topology version=\"3.0\">\n\n<object type=\"Planet\"/>\n</topology>"),
              AllOf(HasSubstr("Planet"), HasSubstr("line 3")));
}

// hwloc refuses such a file or crashes on it, depending on its version. It must be refused.
TEST(HwlocGraph, RefusesFilesWhoseObjectsLackTheirSets) {
  const auto object = [](const std::string& type, const std::string& sets, const std::string& in) {
    return cat("<object type=\"", type, "\" os_index=\"0\" ", sets, ">", in, "</object>");
  };
  const std::string sets =
      R"(cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1")";
  const auto file = [&](const std::string& sets_of_cores) {
    const std::string pus = object("PU", sets, "");
    return cat(R"(<topology version="2.0">)",
               object("Machine", cat(sets, R"( allowed_cpuset="0x1" allowed_nodeset="0x1")"),
                      cat(object("NUMANode", sets, ""), object("Core", sets_of_cores, pus),
                          object("Core", sets_of_cores, pus))),
               "</topology>");
  };
  EXPECT_THAT(refusal([&] { (void)parse_hwloc_xml(file(""), "bad.xml"); }), HasSubstr("bad.xml"));
}

// ---- text and JSON

TEST(GraphText, CountsLinks) {
  const Graph graph =
      parse_graph_text("node a gpu\nnode b gpu\nlink a b nvlink 4x20GB/s 500ns\n", "t");
  ASSERT_THAT(graph.links(), SizeIs(1));
  EXPECT_DOUBLE_EQ(graph.links()[0].GBps, 80);
  EXPECT_DOUBLE_EQ(graph.links()[0].latency_us, 0.5);
}

TEST(GraphText, RefusesBadFilesWithTheirLine) {
  const auto refused = [](const std::string& text) {
    return refusal([&] { (void)parse_graph_text(text, "bad.txt"); });
  };
  EXPECT_THAT(refused("# a\nnode a gpu\nnode a gpu\n"),
              AllOf(HasSubstr("twice"), HasSubstr("bad.txt, line 3")));
  EXPECT_THAT(refused("node a planet\n"), AllOf(HasSubstr("planet"), HasSubstr("line 1")));
  EXPECT_THAT(refused("node a gpu\nlink a b nvlink 20GB/s\n"),
              AllOf(HasSubstr("undefined node"), HasSubstr("line 2")));
  EXPECT_THAT(refused("node a gpu\nlink a a nvlink 20GB/s\n"), HasSubstr("line 2"));
  EXPECT_THAT(refused("node a gpu\nnode b gpu\nlink a b nvlink fast\n"), HasSubstr("line 3"));
  EXPECT_THAT(refused("node a gpu\nnode b gpu\nlink a b nvlink 0GB/s\n"), HasSubstr("line 3"));
  EXPECT_THAT(refused("node a gpu host=x\n"), HasSubstr("line 1"));
  EXPECT_THAT(refused("edge a b\n"), HasSubstr("line 1"));
}

TEST(GraphJson, ReadsWhatItWrites) {
  const Graph graph = parse_nccl_topology(kTwoGpus, "two.xml");
  const std::string json = to_json(graph).dump();
  EXPECT_EQ(to_json(parse_graph_json(json, "two.json")).dump(), json);
}

TEST(GraphJson, MarksAssumedSpeeds) {
  Graph graph;
  const int card = graph.add({.kind = NodeKind::nic, .number = 0, .name = "eth0"});
  const int network = graph.add({.kind = NodeKind::network_switch, .host = -1, .name = "network"});
  EXPECT_EQ(unknown_speeds(graph), "");
  graph.connect({.from = card, .to = network, .GBps = 1.25, .assumed = true});
  const Graph read = parse_graph_json(to_json(graph).dump(), "assumed.json");
  EXPECT_EQ(unknown_speeds(read), "The bandwidth of eth0 is unknown: 10 Gbit/s are assumed.\n");
}

TEST(GraphJson, RefusesBadFilesWithTheirPlace) {
  const auto refused = [](const std::string& json) {
    return refusal([&] { (void)parse_graph_json(json, "bad.json"); });
  };
  EXPECT_THAT(refused("{"), HasSubstr("bad.json"));
  EXPECT_THAT(refused("[]"), HasSubstr("\"nodes\""));
  EXPECT_THAT(refused(R"({"nodes": [{"kind": "sun"}], "links": []})"),
              AllOf(HasSubstr("sun"), HasSubstr("nodes[0]")));
  EXPECT_THAT(refused(R"({"nodes": [{"kind": "gpu"}], "links": [{"from": 0, "to": 1,
                          "class": "pci", "bandwidth_GBps": 1}]})"),
              HasSubstr("links[0]"));
  EXPECT_THAT(refused(R"({"nodes": [{"kind": "gpu"}, {"kind": "gpu"}], "links": [{"from": 0,
                          "to": 1, "class": "pci", "bandwidth_GBps": -1}]})"),
              HasSubstr("links[0]"));
}

// ---- files whose kind is detected by their contents

TEST(LoadGraph, DetectsTheKindOfAFileByItsContents) {
  const std::filesystem::path folder = ::testing::TempDir();
  const auto written = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  EXPECT_THAT(load_graph(written("a", cat("<!-- topology -->\n", kTwoGpus))).rank_nodes(),
              SizeIs(2));
  EXPECT_THAT(load_graph(written("b", "# mine\nnode x gpu\n")).rank_nodes(), SizeIs(1));
  EXPECT_THAT(load_graph(written("c", R"({"nodes": [{"kind": "gpu"}], "links": []})")).rank_nodes(),
              SizeIs(1));
  EXPECT_THAT(refusal([&] { (void)load_graph(written("d", "  \n")); }), HasSubstr("empty"));
  EXPECT_THROW((void)load_graph((folder / "none").string()), Error);
}

TEST(LoadGraph, RepeatsAHost) {
  const Graph one = parse_nccl_topology(kTwoGpus, "two.xml");
  const Graph three = repeat_host(one, 3);
  EXPECT_EQ(three.hosts(), 3);
  EXPECT_THAT(three.rank_nodes(), SizeIs(6));
  EXPECT_EQ(count(three, NodeKind::network_switch), 1);
  EXPECT_EQ(route(three, three.rank_nodes()[0], three.rank_nodes()[5]).type, PathType::NET);
}

void expect_all_load(const std::filesystem::path& folder) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    ++files;
    try {
      const Graph graph = load_graph(entry.path().string());
      EXPECT_GE(graph.rank_nodes().size(), 1u) << entry.path();
      const std::vector<int> ranks = graph.rank_nodes();
      for (const Route& way : routes_from(graph, ranks[0], ranks)) {
        EXPECT_NE(way.type, PathType::DIS) << entry.path();
      }
    } catch (const Error& error) {
      ADD_FAILURE() << entry.path() << ": " << error.what();
    }
  }
  EXPECT_GE(files, 10) << folder;
}

TEST(LoadGraph, ReadsPublishedNcclFiles) {
  const std::filesystem::path folder = testing::test_data("nccl_topo");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  expect_all_load(folder);
}

TEST(LoadGraph, ReadsPublishedHwlocFiles) {
  const std::filesystem::path folder = testing::test_data("hwloc");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  expect_all_load(folder);
}

}  // namespace
}  // namespace tutti
