#include "topology/networks/load_network.h"

#include <filesystem>

#include "base/file_text.h"
#include "base/text.h"
#include "topology/graph_sources.h"
#include "topology/hwloc_graph.h"

namespace tutti {

std::unique_ptr<Network> load_network(const std::string& source, std::optional<int> ranks) {
  constexpr std::string_view kSynthetic = "synthetic";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(source, ignored)) {
    const std::string text = file_text(source, FileKind::graph);
    if (is_graph_file(text)) return std::make_unique<Network>(parse_graph(text, source));
    return read_network(text, source);
  }
  std::string description = source;
  if (source == kSynthetic) {
    description = "switch";
  } else if (source.starts_with(cat(kSynthetic, ':'))) {
    description = source.substr(kSynthetic.size() + 1);
  }
  // hwloc's description of one host contains "pu:", as in "package:2 core:4 pu:1".
  if (cat(' ', description).find(" pu:") != std::string::npos) {
    return std::make_unique<Network>(synthetic_host_graph(description));
  }
  return std::make_unique<Network>(parse_structure(description, ranks));
}

}  // namespace tutti
