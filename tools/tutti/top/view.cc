#include "tools/tutti/top/view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <set>

#include "base/median.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::tool {

namespace {

using bootstrap::RankState;
using bootstrap::RankStatus;

// Smallest share that is reported; smaller ones may be random.
constexpr double kNotable = 0.1;
// Calls that take longer are considered blocked.
constexpr int64_t kLongNs = 300'000'000;

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string_view name(RankState state) {
  constexpr std::array<std::string_view, 4> kNames = {"answers", "silent", "died", "left"};
  return kNames.at(static_cast<size_t>(state));
}

double rate(uint64_t before, uint64_t now, double seconds) {
  return now > before ? static_cast<double>(now - before) / seconds : 0;
}

// Computes the late shares. Ranks that completed calls are compared only with each other: a rank
// that was in a single call all the time, such as a waiting spare, does not show that others are
// late.
void find_late_shares(std::vector<RankView>& ranks) {
  for (RankView& own : ranks) {
    if (own.status.state != RankState::answers) continue;
    std::vector<double> others;
    for (const RankView& other : ranks) {
      const bool is_alike = own.calls_per_second == 0 || other.calls_per_second > 0;
      if (&other != &own && other.status.state == RankState::answers && is_alike) {
        others.push_back(other.waiting_share);
      }
    }
    own.late_share = std::max(0.0, median(std::move(others)) - own.waiting_share);
    if (own.calls_per_second > 0) own.late_seconds = own.late_share / own.calls_per_second;
  }
}

std::vector<LinkView> compare_links(const std::map<int, Activity>& before,
                                    const std::vector<RankStatus>& now, double seconds) {
  std::vector<LinkView> links;
  for (const RankStatus& status : now) {
    const auto earlier = before.find(status.rank);
    for (const auto& [from, bytes] : status.activity.received) {
      uint64_t past = 0;
      if (earlier != before.end() && earlier->second.received.contains(from)) {
        past = earlier->second.received.at(from);
      }
      links.push_back({from, status.rank, bytes, rate(past, bytes, seconds)});
    }
  }
  std::ranges::stable_sort(links, std::greater<>(), &LinkView::bytes_per_second);
  return links;
}

std::string doing(const RankStatus& status) {
  return status.activity.current.empty() ? "is in no call"
                                         : cat("is in ", printable(status.activity.current));
}

// Follows the chain from each rank to the first rank that it waits for, and returns the last rank.
// Returns nullptr if the chain is a cycle or leads to a rank that has not answered.
const RankView* end_of_chain(const RankView& first, const std::map<int, const RankView*>& by_rank) {
  std::set<int> seen;
  const RankView* at = &first;
  while (!at->status.activity.waits_for.empty() && seen.insert(at->status.rank).second) {
    const auto next = by_rank.find(at->status.activity.waits_for.front());
    if (next == by_rank.end()) break;
    at = next->second;
  }
  return at->status.activity.waits_for.empty() ? at : nullptr;
}

// Returns the last rank of the chain that begins with the longest-waiting rank. If that last rank
// completes calls, it is working, and the ranks that wait for it may be spares; then tries the next
// longest-waiting rank. Returns nothing if no chain remains.
std::optional<Straggler> who_is_waited_for(const std::map<int, const RankView*>& by_rank) {
  std::vector<const RankView*> waiting;
  for (const auto& [rank, view] : by_rank) {
    const Activity& activity = view->status.activity;
    if (!activity.waits_for.empty() && activity.current_ns >= kLongNs) waiting.push_back(view);
  }
  std::ranges::stable_sort(waiting, std::greater<>(),
                           [](const RankView* view) { return view->status.activity.current_ns; });
  for (const RankView* first : waiting) {
    const RankView* const end = end_of_chain(*first, by_rank);
    if (end == nullptr || end->calls_per_second > 0) continue;
    const Activity& activity = first->status.activity;
    return Straggler{end->status.rank,
                     cat(describe(first->status), " has waited for ",
                         std::round(seconds_of(activity.current_ns) * 10) / 10, " s in ",
                         printable(activity.current), "; this rank ", doing(end->status))};
  }
  return std::nullopt;
}

std::optional<Straggler> find_straggler(const std::vector<RankView>& ranks) {
  std::map<int, const RankView*> answering;
  for (const RankView& view : ranks) {
    // The descendants of a silent rank in the tree cannot answer either. They are higher ranks, so
    // the first silent rank is the cause.
    if (view.status.state == RankState::silent) {
      return Straggler{view.status.rank,
                       "it does not answer: it is stopped or its host is unreachable"};
    }
    if (view.status.state == RankState::answers) answering[view.status.rank] = &view;
  }
  if (std::optional<Straggler> found = who_is_waited_for(answering)) return found;
  const auto latest = std::ranges::max_element(ranks, {}, &RankView::late_share);
  if (latest == ranks.end() || latest->late_share < kNotable) return std::nullopt;
  const auto percent = [](double share) { return std::lround(100 * share); };
  return Straggler{latest->status.rank,
                   cat("the others waited ", percent(latest->late_share + latest->waiting_share),
                       "% of the time, it waited ", percent(latest->waiting_share),
                       "%: ", std::round(latest->late_seconds * 1e6) * 1e-3, " ms a call")};
}

std::string row(const RankView& view) {
  const RankStatus& status = view.status;
  const Activity& activity = status.activity;
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(),
                "%6d  %-16s %8jd %12ju %10.0f %10.3f %8.3f %7.1f%% %5.1f%%", status.rank,
                printable(status.host, 16).c_str(), static_cast<intmax_t>(status.pid),
                static_cast<uintmax_t>(activity.calls), view.calls_per_second,
                static_cast<double>(activity.bytes) * 1e-9, view.bytes_per_second * 1e-9,
                100 * view.waiting_share, 100 * view.late_share);
  std::string text = line.data();
  if (status.state != RankState::answers) return cat(text, "  ", name(status.state), '\n');
  if (!activity.current.empty()) {
    std::array<char, 32> seconds{};
    std::snprintf(seconds.data(), seconds.size(), "%.1f s", seconds_of(activity.current_ns));
    text += cat("  ", printable(activity.current), ", ", seconds.data());
  }
  if (!activity.waits_for.empty()) text += cat(", waits for ", rank_ranges(activity.waits_for));
  return text + '\n';
}

Json to_json(const RankView& view) {
  const RankStatus& status = view.status;
  const Activity& activity = status.activity;
  return {{"rank", status.rank},
          {"host", status.host},
          {"pid", status.pid},
          {"state", name(status.state)},
          {"calls", activity.calls},
          {"bytes", activity.bytes},
          {"calls_per_second", view.calls_per_second},
          {"bytes_per_second", view.bytes_per_second},
          {"waiting_share", view.waiting_share},
          {"late_share", view.late_share},
          {"late_seconds", view.late_seconds},
          {"current", activity.current.empty() ? Json() : Json(activity.current)},
          {"current_seconds", seconds_of(activity.current_ns)},
          {"waits_for", activity.waits_for}};
}

}  // namespace

std::string describe(const RankStatus& status) {
  return cat("rank ", status.rank, " (", printable(status.host), ", pid ", status.pid, ")");
}

JobView compare(const std::vector<RankStatus>& before, const std::vector<RankStatus>& now,
                double seconds) {
  std::map<int, Activity> earlier;
  for (const RankStatus& status : before) {
    if (status.state == RankState::answers) earlier[status.rank] = status.activity;
  }
  JobView view{.seconds = seconds};
  for (const RankStatus& status : now) {
    RankView& rank = view.ranks.emplace_back(RankView{.status = status});
    const auto past = earlier.find(status.rank);
    if (past == earlier.end() || status.state != RankState::answers) continue;
    rank.calls_per_second = rate(past->second.calls, status.activity.calls, seconds);
    rank.bytes_per_second = rate(past->second.bytes, status.activity.bytes, seconds);
    const int64_t waited = status.activity.waited_ns - past->second.waited_ns;
    rank.waiting_share = std::clamp(seconds_of(waited) / seconds, 0.0, 1.0);
  }
  find_late_shares(view.ranks);
  view.links = compare_links(earlier, now, seconds);
  view.straggler = find_straggler(view.ranks);
  return view;
}

Json to_json(const JobView& view) {
  Json ranks = Json::array();
  for (const RankView& rank : view.ranks) ranks.push_back(to_json(rank));
  Json links = Json::array();
  for (const LinkView& link : view.links) {
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"bytes", link.bytes},
                     {"bytes_per_second", link.bytes_per_second}});
  }
  Json straggler;
  if (view.straggler) {
    const RankStatus& status =
        std::ranges::find(view.ranks, view.straggler->rank, [](const RankView& rank) {
          return rank.status.rank;
        })->status;
    straggler = {{"rank", status.rank},
                 {"host", status.host},
                 {"pid", status.pid},
                 {"why", view.straggler->why}};
  }
  return {{"seconds", view.seconds},
          {"ranks", std::move(ranks)},
          {"links", std::move(links)},
          {"straggler", std::move(straggler)}};
}

std::string to_text(const JobView& view, size_t most_ranks) {
  constexpr size_t kMostLinks = 8;
  std::string text =
      "  rank  host                  pid        calls    calls/s         GB     GB/s waiting   "
      "late  call in flight, awaited rank\n";
  std::vector<RankView> ranks = view.ranks;
  if (ranks.size() > most_ranks) {
    std::ranges::stable_sort(ranks, std::greater<>(), &RankView::late_share);
    ranks.resize(most_ranks);
  }
  for (const RankView& rank : ranks) text += row(rank);
  if (ranks.size() < view.ranks.size()) {
    text += cat("        and ", view.ranks.size() - ranks.size(), " more, which are less late\n");
  }
  for (size_t i = 0; i < std::min(kMostLinks, view.links.size()); ++i) {
    const LinkView& link = view.links[i];
    if (link.bytes_per_second == 0) break;
    std::array<char, 64> line{};
    std::snprintf(line.data(), line.size(), "%s %d to %d: %.3g GB/s", i == 0 ? "links:" : ",",
                  link.from, link.to, link.bytes_per_second * 1e-9);
    text += line.data();
  }
  if (text.back() != '\n') text += '\n';
  if (!view.straggler) return text + "no straggler\n";
  const auto slow = std::ranges::find(view.ranks, view.straggler->rank,
                                      [](const RankView& rank) { return rank.status.rank; });
  return cat(text, "straggler: ", describe(slow->status), ": ", view.straggler->why, '\n');
}

}  // namespace tutti::tool
