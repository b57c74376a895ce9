#include "topology/domain.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

namespace {

// Ranks in each place, where they are consecutive and equally many in each; else 1. `place(r)` is
// compared with ==.
template <typename PlaceOf>
int equal_runs(int ranks, const PlaceOf& place) {
  int run = 1;
  while (run < ranks && place(run) == place(0)) ++run;
  if (ranks % run != 0) return 1;
  for (int first = 0; first < ranks; first += run) {
    for (int r = first; r < first + run; ++r) {
      if (place(r) != place(first)) return 1;
    }
    if (first > 0 && place(first) == place(first - 1)) return 1;
  }
  return run;
}

// Of one host's ranks, by one member of Domain. 1 when it makes no groups.
int group_by(std::span<const Place> ranks, int Domain::*member) {
  for (const Place& rank : ranks) {
    if (rank.domain.*member < 0) return 1;
  }
  const int count = static_cast<int>(ranks.size());
  const int group =
      equal_runs(count, [&](int r) { return ranks[static_cast<size_t>(r)].domain.*member; });
  return group < count ? group : 1;
}

}  // namespace

std::string to_text(const Domain& domain) {
  std::string text;
  if (domain.numa_node >= 0) text = cat("numa:", domain.numa_node);
  if (domain.cache >= 0) text += cat(text.empty() ? "" : ",", "cache:", domain.cache);
  return text;
}

Domain parse_domain(const std::string& text) {
  const auto refuse = [&] {
    throw Error(ErrorCode::invalid_argument, cat("TUTTI_DOMAIN='", text, "' is no place on a host"),
                {.remedy = "write it as in numa:0,cache:2, or leave it empty"});
  };
  Domain domain;
  if (text.empty()) return domain;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    const std::string_view name = std::string_view(part).substr(0, colon);
    if (colon == std::string::npos || (name != "numa" && name != "cache")) refuse();
    int& index = name == "numa" ? domain.numa_node : domain.cache;
    const char* const end = part.data() + part.size();
    const auto [stop, status] = std::from_chars(part.data() + colon + 1, end, index);
    if (status != std::errc{} || stop != end || index < 0) refuse();
  }
  return domain;
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

int group_of(std::span<const Place> ranks) {
  const int count = static_cast<int>(ranks.size());
  const int by_host = equal_runs(
      count, [&](int r) -> const std::string& { return ranks[static_cast<size_t>(r)].host; });
  if (by_host < count) return by_host;
  for (int Domain::*member : {&Domain::cache, &Domain::numa_node}) {
    const int group = group_by(ranks, member);
    if (group > 1) return group;
  }
  return by_host;
}

}  // namespace tutti
