#include "topology/graph_text.h"

#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/units.h"

namespace tutti {
namespace {

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
        refuse(cat("a line must begin with node or link, found ", in_quotes(words[0])));
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
    if (words.size() < 3 || words.size() > 4) refuse("expected: node NAME KIND [host=N]");
    if (graph_.nodes().size() >= size_t{kMostNodes})
      refuse(cat("more than ", kMostNodes, " nodes"));
    const std::optional<NodeKind> kind = parse_node_kind(words[2]);
    if (!kind) refuse(cat("unknown node kind ", in_quotes(words[2])));
    const int host = *kind == NodeKind::network_switch && words.size() == 3 ? -1 : host_of(words);
    const int number = numbers_[{host, *kind}]++;
    const std::string name = printable(words[1], 60);
    if (!by_name_.emplace(words[1], static_cast<int>(graph_.nodes().size())).second) {
      refuse(cat("the node ", name, " is defined twice"));
    }
    graph_.add({.kind = *kind, .host = host, .number = number, .name = name});
  }

  int host_of(const std::vector<std::string>& words) const {
    if (words.size() == 3) return 0;
    constexpr std::string_view kHost = "host=";
    const std::string_view word = words[3];
    const auto host =
        word.starts_with(kHost) ? parse_number<int>(word.substr(kHost.size())) : std::nullopt;
    if (!host || *host < 0 || *host >= kMostNodes) {
      refuse(cat("invalid host ", in_quotes(word)), "write it as host=1");
    }
    return *host;
  }

  void read_link(const std::vector<std::string>& words) {
    if (words.size() < 5 || words.size() > 6) {
      refuse("expected: link NODE NODE CLASS BANDWIDTH [LATENCY]");
    }
    const std::optional<LinkClass> kind = parse_link_class(words[3]);
    if (!kind) refuse(cat("unknown link class ", in_quotes(words[3])));
    const double GBps =
        count_of(words[4]) * parsed([&] { return parse_bandwidth(one_of(words[4])); });
    const double latency_us =
        words.size() == 6 ? parsed([&] { return parse_latency(words[5]); }) : 0;
    const int from = node_named(words[1]);
    const int to = node_named(words[2]);
    if (from == to) refuse(cat(printable(words[1]), " is linked to itself"));
    parsed([&] { return graph_.connect({from, to, *kind, GBps, latency_us}); });
  }

  // Returns the bandwidth of one link: "20GB/s" for "4x20GB/s", which means four links.
  static std::string_view one_of(std::string_view bandwidth) {
    const size_t times = bandwidth.find('x');
    return times == std::string_view::npos ? bandwidth : bandwidth.substr(times + 1);
  }
  int count_of(std::string_view bandwidth) const {
    const size_t times = bandwidth.find('x');
    if (times == std::string_view::npos) return 1;
    const auto count = parse_number<int>(bandwidth.substr(0, times));
    if (!count || *count < 1 || *count > 1024) {
      refuse(cat("invalid bandwidth ", in_quotes(bandwidth)), "write it as 4x20GB/s");
    }
    return *count;
  }
  // Returns what `read` returns. If `read` throws, the error gets the line.
  template <typename Read>
  double parsed(Read read) const {
    try {
      return read();
    } catch (const Error& error) {
      refuse(error.what());
    }
  }

  int node_named(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) refuse(cat("undefined node ", in_quotes(name)));
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

Graph parse_graph_text(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace tutti
