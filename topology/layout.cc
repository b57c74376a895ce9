#include "topology/layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace tutti {

namespace {

using Positions = std::vector<int>;

// Assigns numbers to keys in the order of their first appearance.
template <typename Key>
class Numbers {
 public:
  int of(const Key& key) {
    return known_.try_emplace(key, static_cast<int>(known_.size())).first->second;
  }

 private:
  std::map<Key, int> known_;
};

// For each level, the outermost first: the number of each rank's rack, host, node or cache; equal
// numbers where the level is unknown.
using Numbered = std::vector<std::vector<int>>;

// Numbers the racks of each level. A host is in the rack of its first rank. If racks have paths of
// different lengths, only the levels that all have are used.
Numbered number_racks(std::span<const Place> ranks, const std::vector<int>& host) {
  std::vector<std::vector<std::string>> ways;  // rack paths by host
  size_t levels = ranks.empty() ? 0 : std::string::npos;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (static_cast<size_t>(host[r]) < ways.size()) continue;
    ways.push_back(ranks[r].rack.empty() ? std::vector<std::string>() : split(ranks[r].rack, '.'));
    levels = std::min(levels, ways.back().size());
  }
  Numbered numbered;
  for (size_t level = 0; level < levels; ++level) {
    Numbers<std::vector<std::string>> numbers;
    std::vector<int>& number = numbered.emplace_back();
    for (const int h : host) {
      const std::vector<std::string>& way = ways[static_cast<size_t>(h)];
      number.push_back(numbers.of({way.begin(), way.begin() + static_cast<ptrdiff_t>(level) + 1}));
    }
  }
  return numbered;
}

// Numbers the NUMA nodes or caches (`member`) of all hosts. On a host where this is unknown for
// some rank, all ranks get the same number.
std::vector<int> number_domains(std::span<const Place> ranks, const std::vector<int>& host,
                                int Domain::*member) {
  std::map<int, bool> known;  // by host: true if known for all its ranks
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto entry = known.try_emplace(host[r], true).first;
    entry->second = entry->second && ranks[r].domain.*member >= 0;
  }
  Numbers<std::pair<int, int>> numbers;
  std::vector<int> numbered;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int which = known[host[r]] ? ranks[r].domain.*member : -1;
    numbered.push_back(numbers.of({host[r], which}));
  }
  return numbered;
}

Numbered number_places(std::span<const Place> ranks) {
  std::vector<int> host;
  Numbers<std::string_view> hosts;
  for (const Place& rank : ranks) host.push_back(hosts.of(rank.host));
  Numbered numbered = number_racks(ranks, host);
  numbered.push_back(host);
  numbered.push_back(number_domains(ranks, host, &Domain::numa_node));
  numbered.push_back(number_domains(ranks, host, &Domain::cache));
  return numbered;
}

std::vector<int> sorted_by(const Numbered& numbered) {
  std::vector<int> rank_at(numbered.front().size());
  std::iota(rank_at.begin(), rank_at.end(), 0);
  // The sort by the innermost level comes first; the stable sorts by outer levels preserve its
  // order.
  for (auto number = numbered.rbegin(); number != numbered.rend(); ++number) {
    std::ranges::stable_sort(rank_at, {},
                             [&](int rank) { return (*number)[static_cast<size_t>(rank)]; });
  }
  return rank_at;
}

// Returns the positions at which the rank's `number` differs from that of the rank before, or at
// which a group of the level `outside` begins; then the number of ranks.
Positions starts_of(const std::vector<int>& rank_at, const std::vector<int>& number,
                    const Positions& outside) {
  Positions starts;
  for (size_t position = 0; position < rank_at.size(); ++position) {
    const auto at = [&](size_t p) { return number[static_cast<size_t>(rank_at[p])]; };
    const bool first = position == 0 || at(position) != at(position - 1) ||
                       std::ranges::binary_search(outside, static_cast<int>(position));
    if (first) starts.push_back(static_cast<int>(position));
  }
  starts.push_back(static_cast<int>(rank_at.size()));
  return starts;
}

// Appends a level unless it equals the level outside, or every rank is alone in it.
void add_level(std::vector<Positions>& levels, Positions starts) {
  const size_t ranks = static_cast<size_t>(starts.back());
  const size_t groups = starts.size() - 1;
  const size_t outside = levels.empty() ? 1 : levels.back().size() - 1;
  if (groups > outside && groups < ranks) levels.push_back(std::move(starts));
}

}  // namespace

Layout Layout::from(Tree tree) {
  Layout layout;
  if (std::ranges::is_sorted(tree.rank_at)) tree.rank_at.clear();
  tree.position_of.resize(tree.rank_at.size());
  for (size_t i = 0; i < tree.rank_at.size(); ++i) {
    tree.position_of[static_cast<size_t>(tree.rank_at[i])] = static_cast<int>(i);
  }
  const bool has_bounds = !tree.rank_at.empty() || !tree.starts.empty();
  if (has_bounds) layout.tree_ = std::make_shared<const Tree>(std::move(tree));
  return layout;
}

Layout Layout::of(std::span<const Place> ranks) {
  const Numbered numbered = number_places(ranks);
  Tree tree;
  tree.rank_at = sorted_by(numbered);
  Positions outside;
  constexpr size_t kOnHost = 3;  // number of levels on a host: host, node, cache
  for (size_t level = 0; level < numbered.size(); ++level) {
    outside = starts_of(tree.rank_at, numbered[level], outside);
    add_level(tree.starts, outside);
    if (level + kOnHost < numbered.size()) tree.above_hosts = static_cast<int>(tree.starts.size());
  }
  return from(std::move(tree));
}

Layout Layout::equal(int ranks, int each) {
  std::vector<int> sizes;
  for (int left = ranks; left > 0; left -= sizes.back()) sizes.push_back(std::min(each, left));
  return of_sizes(sizes);
}

Layout Layout::of_sizes(std::span<const int> sizes) {
  Positions starts{0};
  for (const int size : sizes) starts.push_back(starts.back() + size);
  Tree tree;
  add_level(tree.starts, std::move(starts));
  return from(std::move(tree));
}

Layout Layout::of_positions() const {
  Layout layout;
  if (levels() > 0) {
    layout = from({.rank_at = {},
                   .position_of = {},
                   .starts = tree_->starts,
                   .above_hosts = tree_->above_hosts});
  }
  return layout;
}

Layout Layout::of_hosts() const {
  if (!tree_ || tree_->above_hosts == 0) return *this;
  const std::span<const Positions> starts = tree_->starts;
  const auto on_hosts = starts.subspan(static_cast<size_t>(tree_->above_hosts));
  return from(
      {.rank_at = tree_->rank_at, .position_of = {}, .starts = {on_hosts.begin(), on_hosts.end()}});
}

int Layout::group_of(int level, int position) const {
  const Positions& all = starts(level);
  return static_cast<int>(std::ranges::upper_bound(all, position) - all.begin()) - 1;
}

int Layout::smallest(int level) const {
  int least = size(level, 0);
  for (int group = 1; group < groups(level); ++group) least = std::min(least, size(level, group));
  return least;
}

int Layout::largest(int level) const {
  int most = 0;
  for (int group = 0; group < groups(level); ++group) most = std::max(most, size(level, group));
  return most;
}

Layout Layout::outside(int level) const {
  Tree tree;
  for (int outer = 0; outer < level; ++outer) {
    Positions positions;
    for (const int start : starts(outer)) {
      const Positions& all = starts(level);
      positions.push_back(static_cast<int>(std::ranges::lower_bound(all, start) - all.begin()));
    }
    add_level(tree.starts, std::move(positions));
  }
  return from(std::move(tree));
}

bool Layout::operator==(const Layout& other) const {
  return tree_ == other.tree_ || (tree_ && other.tree_ && *tree_ == *other.tree_);
}

std::string to_text(const Layout& layout) {
  std::string text;
  for (int level = layout.levels() - 1; level >= 0; --level) {
    text += cat(text.empty() ? "" : " in ", "groups of ");
    if (layout.even(level)) {
      text += cat(layout.smallest(level));
      continue;
    }
    for (int group = 0; group < layout.groups(level); ++group) {
      text += cat(group == 0 ? "" : ", ", layout.size(level, group));
    }
  }
  return text;
}

}  // namespace tutti
