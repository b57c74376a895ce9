#include "topology/domain.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti {

std::string to_text(const Domain& domain) {
  std::string text;
  if (domain.numa_node >= 0) text = cat("numa:", domain.numa_node);
  if (domain.cache >= 0) text += cat(text.empty() ? "" : ",", "cache:", domain.cache);
  return text;
}

Domain parse_domain(const std::string& text) {
  const auto refuse = [&] {
    throw Error(ErrorCode::invalid_argument, cat("invalid location TUTTI_DOMAIN='", text, "'"),
                {.remedy = "write it as numa:0,cache:2, or leave it empty"});
  };
  Domain domain;
  if (text.empty()) return domain;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    const std::string_view name = std::string_view(part).substr(0, colon);
    if (colon == std::string::npos || (name != "numa" && name != "cache")) refuse();
    const auto index = parse_number<int>(std::string_view(part).substr(colon + 1));
    if (!index || *index < 0) refuse();
    (name == "numa" ? domain.numa_node : domain.cache) = *index;
  }
  return domain;
}

std::string parse_rack(const std::string& text) {
  constexpr size_t kLongest = 200;
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-:/[],").find(c) != std::string_view::npos;
  };
  const bool whole =
      !text.starts_with('.') && !text.ends_with('.') && text.find("..") == std::string::npos;
  if (text.size() <= kLongest && whole && std::ranges::all_of(text, allowed)) return text;
  throw Error(ErrorCode::invalid_argument, cat("invalid rack ", in_quotes(text)),
              {.remedy = "write the switches above the host, the outermost first, for example "
                         "row2.rack7, in TUTTI_RACK or after rack= in a host file"});
}

std::string rack_of_slurm(const std::string& address, const std::string& pattern) {
  const std::vector<std::string> names = split(address, '.');
  const std::vector<std::string> kinds = split(pattern, '.');
  std::string rack;
  for (size_t i = 0; i < std::min(names.size(), kinds.size()); ++i) {
    if (kinds[i] != "node") rack += cat(rack.empty() ? "" : ".", names[i]);
  }
  return rack;
}

void Hosts::add(int host) {
  if (host == count()) ranks_on_.push_back(0);
  int& ranks = ranks_on_[static_cast<size_t>(host)];
  spots_.push_back({.host = host, .position = ranks++});
  largest_ = std::max(largest_, ranks);
}

Hosts Hosts::of(std::span<const Place> ranks) {
  Hosts hosts;
  std::map<std::string_view, int> numbers;
  for (const Place& rank : ranks) {
    hosts.add(numbers.try_emplace(rank.host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

Hosts Hosts::equal(int ranks, int each) {
  Hosts hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.add(rank / std::max(1, each));
  return hosts;
}

}  // namespace tutti
