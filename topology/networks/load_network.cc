#include "topology/networks/load_network.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

std::unique_ptr<Network> load_network(const std::string& source, std::optional<int> ranks) {
  constexpr std::string_view kSynthetic = "synthetic";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(source, ignored)) {
    std::ifstream file(source, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) {
      throw Error(ErrorCode::system, cat("cannot read ", source),
                  {.remedy = "look at the file and who may read it"});
    }
    return read_network(text.str(), source);
  }
  std::string description = source;
  if (source == kSynthetic) {
    description = "switch";
  } else if (source.starts_with(cat(kSynthetic, ':'))) {
    description = source.substr(kSynthetic.size() + 1);
  }
  return std::make_unique<Network>(parse_structure(description, ranks));
}

}  // namespace tutti
