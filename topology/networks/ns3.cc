// Reader of the topology files of ns-3 simulators.

#include <algorithm>
#include <map>

#include "topology/networks/file_formats.h"
#include "topology/units.h"

namespace tutti {

namespace {

struct Ns3Head {
  int nodes = 0;
  int gpus_per_server = 1;
  int nvswitches = 0;
  int switches = 0;  // number of switches, without NVSwitches
  int links = 0;
};

Ns3Head head_of(const TextFile& file) {
  const TextLine& line = file.lines[0];
  const auto number = [&](size_t i, std::string_view what) {
    return file.parse_whole(line.number, line.words[i], what, 0, kMostNodes);
  };
  Ns3Head head;
  head.nodes = number(0, "the number of nodes");
  if (line.words.size() == 3) {
    head.switches = number(1, "the number of switches");
    head.links = number(2, "the number of links");
  } else if (line.words.size() == 5 || line.words.size() == 6) {
    head.gpus_per_server = number(1, "the number of GPUs in a server");
    head.nvswitches = number(2, "the number of NVSwitches");
    head.switches = number(3, "the number of switches");
    head.links = number(4, "the number of links");
  } else {
    file.refuse(line.number, "expected 'nodes switches links'");
  }
  if (head.gpus_per_server < 1) file.refuse(line.number, "a server needs at least one GPU");
  if (head.nvswitches + head.switches >= head.nodes) {
    file.refuse(line.number, "of ", head.nodes, " nodes ", head.nvswitches + head.switches,
                " are switches: no node remains for ranks");
  }
  return head;
}

// Returns the switches in the file's order, NVSwitches first. The list may span several lines, as
// in ns-3.
std::vector<int> switches_of(const TextFile& file, const Ns3Head& head, size_t& line) {
  std::vector<int> switches;
  const auto wanted = static_cast<size_t>(head.nvswitches) + static_cast<size_t>(head.switches);
  std::vector<bool> named(static_cast<size_t>(head.nodes));
  for (; switches.size() < wanted; ++line) {
    if (line == file.lines.size()) {
      file.refuse(file.lines.back().number, "only ", switches.size(), " of ", wanted,
                  " switches are named");
    }
    const TextLine& at = file.lines[line];
    for (const std::string& word : at.words) {
      const int node = file.parse_whole(at.number, word, "a switch", 0, head.nodes - 1);
      if (named[static_cast<size_t>(node)]) {
        file.refuse(at.number, "switch ", node, " is named twice");
      }
      named[static_cast<size_t>(node)] = true;
      switches.push_back(node);
    }
    if (switches.size() > wanted)
      file.refuse(at.number, "more than ", wanted, " switches are named");
  }
  return switches;
}

Graph ns3_nodes(const Ns3Head& head, const std::vector<int>& switches) {
  std::map<int, size_t> place;  // by node: index among the switches
  for (size_t i = 0; i < switches.size(); ++i) place.emplace(switches[i], i);
  const bool servers = head.nvswitches > 0 || head.gpus_per_server > 1;
  Graph graph;
  int rank = 0;
  for (int node = 0; node < head.nodes; ++node) {
    const auto found = place.find(node);
    if (found != place.end()) {
      const bool inside = found->second < static_cast<size_t>(head.nvswitches);
      const int per_server = std::max(
          1, static_cast<int>(int64_t{head.nvswitches} * head.gpus_per_server /
                              std::max(1, head.nodes - static_cast<int>(switches.size()))));
      graph.add({.kind = inside ? NodeKind::nvlink_switch : NodeKind::network_switch,
                 .host = inside ? static_cast<int>(found->second) / per_server : -1,
                 .number = node,
                 .name = cat(inside ? "nvswitch" : "switch", node)});
      continue;
    }
    const int host = servers ? rank / head.gpus_per_server : rank;
    graph.add({.kind = servers ? NodeKind::gpu : NodeKind::host,
               .host = host,
               .number = servers ? rank % head.gpus_per_server : 0,
               .name = cat(servers ? "gpu" : "host", node)});
    ++rank;
  }
  return graph;
}

void add_ns3_link(const TextFile& file, const TextLine& line, Graph& graph) {
  if (line.words.size() != 5 && line.words.size() != 4) {
    file.refuse(line.number, "expected a link 'from to rate delay error_rate'");
  }
  const int last = static_cast<int>(graph.nodes().size()) - 1;
  const int from = file.parse_whole(line.number, line.words[0], "a link's end", 0, last);
  const int to = file.parse_whole(line.number, line.words[1], "a link's end", 0, last);
  if (from == to) file.refuse(line.number, "a link connects node ", from, " to itself");
  const bool inside = graph.node(from).kind == NodeKind::nvlink_switch ||
                      graph.node(to).kind == NodeKind::nvlink_switch;
  graph.connect({.from = from,
                 .to = to,
                 .kind = inside ? LinkClass::nvlink : LinkClass::network,
                 .GBps = file.parse(line.number, parse_bandwidth, line.words[2]),
                 .latency_us = file.parse(line.number, parse_latency, line.words[3])});
}

}  // namespace

std::unique_ptr<Network> read_ns3(const TextFile& file) {
  const Ns3Head head = head_of(file);
  size_t line = 1;
  const std::vector<int> switches = switches_of(file, head, line);
  Graph graph = ns3_nodes(head, switches);
  const size_t end = line + static_cast<size_t>(head.links);
  if (end > file.lines.size()) {
    file.refuse(file.lines.back().number, "the file declares ", head.links, " links but has ",
                file.lines.size() - line);
  }
  for (; line < end; ++line) add_ns3_link(file, file.lines[line], graph);
  // The rest of the file is ignored, as in ns-3.
  return std::make_unique<Network>(std::move(graph));
}

}  // namespace tutti
