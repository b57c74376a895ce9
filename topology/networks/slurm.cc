// Reader of Slurm's topology.conf. It describes trees, or dragonflies, in which switches have nodes
// and also name neighbouring switches.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/host_list.h"
#include "topology/networks/file_formats.h"

namespace tutti {

namespace {

struct SlurmSwitch {
  int line = 0;
  std::string name;
  std::vector<std::string> nodes;
  std::vector<std::string> switches;
};

SlurmSwitch parse_slurm_line(const TextFile& file, const TextLine& line) {
  SlurmSwitch found{.line = line.number, .name = {}, .nodes = {}, .switches = {}};
  for (const std::string& word : line.words) {
    const size_t equals = word.find('=');
    const std::string key = lower_case(word.substr(0, equals));
    const std::string value = equals == word.npos ? "" : word.substr(equals + 1);
    if (value.empty()) file.refuse(line.number, "'", word, "' has no value");
    try {
      if (key == "switchname") {
        found.name = value;
      } else if (key == "nodes") {
        found.nodes = expand_host_list(value);
      } else if (key == "switches") {
        found.switches = expand_host_list(value);
      }
    } catch (const Error& error) {
      file.refuse(line.number, error.what());
    }
    if (key != "switchname" && key != "nodes" && key != "switches" && key != "linkspeed") {
      file.refuse(line.number, "'", key, "' is not one of SwitchName, Nodes, Switches, LinkSpeed");
    }
  }
  if (found.name.empty()) file.refuse(line.number, "a line must name its switch: SwitchName=");
  if (found.nodes.empty() && found.switches.empty()) {
    file.refuse(line.number, "switch ", found.name, " needs Nodes= or Switches=");
  }
  return found;
}

}  // namespace

std::unique_ptr<Network> read_slurm(const TextFile& file) {
  std::vector<SlurmSwitch> switches;
  size_t named = 0;
  for (const TextLine& line : file.lines) {
    switches.push_back(parse_slurm_line(file, line));
    named += switches.back().nodes.size() + switches.back().switches.size();
    if (named > kMostNodes) file.refuse(line.number, "more than ", kMostNodes, " nodes");
  }
  Graph graph;
  std::map<std::string, int> nodes;
  std::map<std::string, int> leaves;  // by host: line of its switch
  for (const SlurmSwitch& s : switches) {
    for (const std::string& node : s.nodes) {
      const auto [known, is_new] = leaves.emplace(node, s.line);
      if (!is_new)
        file.refuse(s.line, "node ", node, " is already attached to a switch in line ",
                    known->second);
      nodes[node] = graph.add({NodeKind::host, static_cast<int>(nodes.size()), 0, node});
    }
  }
  if (nodes.empty()) file.refuse(file.lines.back().number, "no switch has nodes");
  std::map<std::string, int> numbers;
  for (const SlurmSwitch& s : switches) {
    const int node = graph.add({NodeKind::network_switch, -1, 0, s.name});
    if (!numbers.emplace(s.name, node).second)
      file.refuse(s.line, "switch ", s.name, " is defined twice");
  }
  const LinkSpeed speed;
  std::map<std::string, const SlurmSwitch*> above_of;
  std::set<std::pair<int, int>> beside;
  for (const SlurmSwitch& s : switches) {
    const int above = numbers[s.name];
    const auto connect = [&](int below) {
      graph.connect({below, above, speed.kind, speed.GBps, speed.latency_us});
    };
    for (const std::string& node : s.nodes) connect(nodes[node]);
    for (const std::string& name : s.switches) {
      if (!numbers.contains(name)) file.refuse(s.line, "undefined switch ", name);
      if (name == s.name) file.refuse(s.line, "switch ", name, " is below itself");
      if (!s.nodes.empty()) {  // a dragonfly: its neighbours, which list this switch as well
        if (beside.insert(std::minmax(numbers[name], above)).second) connect(numbers[name]);
        continue;
      }
      const auto [known, is_new] = above_of.emplace(name, &s);
      if (!is_new) {
        file.refuse(s.line, "switch ", name, " is already below another one in line ",
                    known->second->line);
      }
      connect(numbers[name]);
    }
  }
  // Each switch is below at most one other, so the way up ends or is a cycle.
  for (const SlurmSwitch& s : switches) {
    const SlurmSwitch* at = &s;
    for (size_t steps = 0; above_of.contains(at->name); at = above_of[at->name]) {
      if (++steps > switches.size()) file.refuse(s.line, "switch ", s.name, " is below itself");
    }
  }
  return std::make_unique<Network>(std::move(graph));
}

}  // namespace tutti
