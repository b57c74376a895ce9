#include "topology/graph_sources.h"

#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/text.h"
#include "topology/graph_json.h"
#include "topology/graph_text.h"
#include "topology/hwloc_graph.h"
#include "topology/nccl_xml.h"

namespace tutti {
namespace {

constexpr std::string_view kBlank = " \t\r\n\xEF\xBB\xBF";

Graph parse_xml(const std::string& text, const std::string& file) {
  // The name of the first element identifies the format; comments and headers may precede it.
  const size_t system = text.find("<system");
  const size_t topology = text.find("<topology");
  return topology < system ? parse_hwloc_xml(text, file) : parse_nccl_topology(text, file);
}

}  // namespace

bool is_graph_file(std::string_view text) {
  const size_t start = text.find_first_not_of(kBlank);
  if (start == std::string::npos) return false;
  if (text[start] == '<' || text[start] == '{') return true;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first;
    if (words >> first) return first == "node" || first == "link";
  }
  return false;
}

Graph parse_graph(const std::string& text, const std::string& file) {
  const size_t start = text.find_first_not_of(kBlank);
  if (start == std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "the file is empty", {.where = file});
  }
  Graph graph = text[start] == '<'   ? parse_xml(text, file)
                : text[start] == '{' ? parse_graph_json(text, file)
                                     : parse_graph_text(text, file);
  if (graph.nodes().empty()) {
    throw Error(ErrorCode::invalid_argument, "the file describes nothing", {.where = file});
  }
  return graph;
}

Graph load_graph(const std::string& path) {
  return parse_graph(file_text(path, FileKind::graph), path);
}

Graph repeat_host(const Graph& host, int hosts) {
  Graph all;
  if (host.ends_forward()) all.let_ends_forward();
  std::vector<int> shared(host.nodes().size(), -1);  // nodes outside hosts, which all copies share
  for (int h = 0; h < hosts; ++h) {
    std::vector<int> copies(host.nodes().size(), -1);
    for (size_t i = 0; i < copies.size(); ++i) {
      GraphNode node = host.nodes()[i];
      if (node.host > 0) continue;
      if (node.host < 0) {
        if (h == 0) shared[i] = all.add(std::move(node));
        copies[i] = shared[i];
        continue;
      }
      node.host = h;
      if (hosts > 1) node.name = cat("host", h, ".", node.name);
      copies[i] = all.add(std::move(node));
    }
    for (GraphLink link : host.links()) {
      const bool is_shared = host.node(link.from).host < 0 && host.node(link.to).host < 0;
      link.from = copies[static_cast<size_t>(link.from)];
      link.to = copies[static_cast<size_t>(link.to)];
      if (link.from >= 0 && link.to >= 0 && (h == 0 || !is_shared)) all.connect(link);
    }
  }
  return all;
}

}  // namespace tutti
