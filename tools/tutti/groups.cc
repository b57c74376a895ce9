#include "tools/tutti/groups.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tutti::tool {

std::vector<int> parse_groups(const std::string& text, int ranks) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorCode::invalid_argument, cat("--group ", problem),
                {.remedy = "write 4 (ranks on each host) or 3,3,2 (ranks on each of three hosts)"});
  };
  std::vector<int> sizes;
  const std::vector<std::string> parts = split(text, ',');
  const auto commas = static_cast<size_t>(std::ranges::count(text, ','));
  if (parts.size() != commas + 1) refuse(cat(text, " has an empty entry"));
  for (const std::string& part : parts) {
    const auto size = parse_number<int>(part);
    if (!size || *size < 1) refuse(cat("requires numbers of ranks of at least 1, not ", part));
    sizes.push_back(*size);
  }
  if (sizes.size() == 1) {
    if (ranks % sizes[0] != 0) refuse(cat(text, " does not divide ", ranks, " ranks"));
    return std::vector<int>(static_cast<size_t>(ranks / sizes[0]), sizes[0]);
  }
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (sum != ranks) refuse(cat(text, " has ", sum, " ranks in total, not ", ranks));
  return sizes;
}

}  // namespace tutti::tool
