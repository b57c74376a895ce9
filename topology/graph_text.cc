#include "topology/graph_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti {
namespace {

constexpr size_t kMostNodes = 1 << 20;

struct Unit {
  std::string_view name;
  double factor;
};

// A positive number and one of the units.
std::optional<double> quantity(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || !(value >= 0)) return std::nullopt;
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  const auto unit = std::ranges::find(units, rest, &Unit::name);
  if (unit == units.end()) return std::nullopt;
  return value * unit->factor;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Graph read() {
    std::istringstream lines{std::string(text_)};
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      std::istringstream stream(line.substr(0, line.find('#')));
      std::vector<std::string> words;
      for (std::string word; stream >> word;) words.push_back(std::move(word));
      if (words.empty()) continue;
      if (words[0] == "node") {
        read_node(words);
      } else if (words[0] == "link") {
        read_link(words);
      } else {
        refuse(cat("a line begins with node or link, not with ", in_quotes(words[0])));
      }
    }
    return std::move(graph_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy = {}) const {
    throw Error(ErrorCode::invalid_argument, problem,
                {.where = cat(file_, ", line ", line_), .remedy = remedy});
  }

  void read_node(const std::vector<std::string>& words) {
    if (words.size() < 3 || words.size() > 4) refuse("a node is written: node NAME KIND [host=N]");
    if (graph_.nodes().size() >= kMostNodes) refuse(cat("more than ", kMostNodes, " nodes"));
    const std::optional<NodeKind> kind = parse_node_kind(words[2]);
    if (!kind) refuse(cat("there are no nodes of kind ", in_quotes(words[2])));
    const int host = *kind == NodeKind::network_switch && words.size() == 3 ? -1 : host_of(words);
    const int number = numbers_[{host, *kind}]++;
    const std::string name = printable(words[1], 60);
    if (!by_name_.emplace(words[1], static_cast<int>(graph_.nodes().size())).second) {
      refuse(cat("the node ", name, " is there twice"));
    }
    graph_.add({.kind = *kind, .host = host, .number = number, .name = name});
  }

  int host_of(const std::vector<std::string>& words) const {
    if (words.size() == 3) return 0;
    constexpr std::string_view kHost = "host=";
    int host = -1;
    const std::string& word = words[3];
    const char* end = word.data() + word.size();
    if (!word.starts_with(kHost) ||
        std::from_chars(word.data() + kHost.size(), end, host).ptr != end || host < 0 ||
        host >= static_cast<int>(kMostNodes)) {
      refuse(cat(in_quotes(word), " is no host"), "write it as host=1");
    }
    return host;
  }

  void read_link(const std::vector<std::string>& words) {
    if (words.size() < 5 || words.size() > 6) {
      refuse("a link is written: link NODE NODE CLASS BANDWIDTH [LATENCY]");
    }
    const std::optional<LinkClass> kind = parse_link_class(words[3]);
    if (!kind) refuse(cat("there are no links of class ", in_quotes(words[3])));
    const std::optional<double> GBps = parse_bandwidth(words[4]);
    if (!GBps || *GBps <= 0) {
      refuse(cat(in_quotes(words[4]), " is no bandwidth"), "write it as 24GB/s or 100Gbit/s");
    }
    double latency_us = 0;
    if (words.size() == 6) {
      const std::optional<double> given = parse_latency_us(words[5]);
      if (!given) refuse(cat(in_quotes(words[5]), " is no latency"), "write it as 0.5us");
      latency_us = *given;
    }
    const int from = node_named(words[1]);
    const int to = node_named(words[2]);
    if (from == to) refuse(cat(printable(words[1]), " is linked to itself"));
    graph_.connect({from, to, *kind, *GBps, latency_us});
  }

  int node_named(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) refuse(cat("there is no node ", in_quotes(name), " above"));
    return found->second;
  }

  std::string_view text_;
  const std::string& file_;
  int line_ = 0;
  Graph graph_;
  std::map<std::string, int> by_name_;
  std::map<std::pair<int, NodeKind>, int> numbers_;
};

}  // namespace

std::optional<double> parse_bandwidth(std::string_view text) {
  constexpr Unit kUnits[] = {{"GB/s", 1},       {"MB/s", 1e-3},       {"Tbit/s", 125},
                             {"Gbit/s", 0.125}, {"Mbit/s", 0.125e-3}, {"Gbps", 0.125},
                             {"Mbps", 0.125e-3}};
  int count = 1;
  const size_t times = text.find('x');
  if (times != std::string_view::npos) {
    const char* end = text.data() + times;
    if (std::from_chars(text.data(), end, count).ptr != end || count < 1) return std::nullopt;
    text.remove_prefix(times + 1);
  }
  const std::optional<double> one = quantity(text, kUnits);
  return one ? std::optional(*one * count) : std::nullopt;
}

std::optional<double> parse_latency_us(std::string_view text) {
  constexpr Unit kUnits[] = {{"us", 1}, {"ns", 1e-3}, {"ms", 1e3}, {"s", 1e6}};
  return quantity(text, kUnits);
}

Graph parse_graph_text(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace tutti
