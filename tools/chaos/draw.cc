// Draws random plans from a seed.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mix_bits.h"
#include "tools/chaos/plan.h"

namespace tutti::tool::chaos {

namespace {

// Longest pause or delay, and longest time between a rank's death and a second death during the
// recovery from it.
constexpr uint64_t kShortMs = 500;
constexpr uint64_t kRecoveryMs = 200;
constexpr uint64_t kRecoveryMessages = 40;
constexpr uint64_t kMostDiskBytes = 4 << 20;
// Maximum length of a partition. Some partitions end before a rank is declared dead, and some end
// later.
constexpr uint64_t kPartitionMs = 12000;
constexpr int64_t kMostShiftS = 24 * 3600;

class Drawer {
 public:
  Drawer(const Draw& draw, uint64_t trial)
      : draw_(draw), state_(mix_bits(draw.seed) + mix_bits(trial + 1)) {}

  uint64_t below(uint64_t bound) { return mix_bits(state_ += kGolden) % bound; }
  bool coin() { return below(2) == 0; }
  uint64_t duration() { return 1 + below(kShortMs); }
  uint64_t bytes() { return 1 + below(kMostDiskBytes); }
  // Draws twice, so that early times, during initialization, are more likely.
  uint64_t time() { return draw_.from_ms + below(1 + below(draw_.span_ms)); }
  uint64_t message() { return 1 + below(1 + below(draw_.messages)); }
  uint64_t soon_after(uint64_t what, uint64_t within) { return what + below(within); }

  const std::vector<std::string>& hosts() const { return draw_.hosts; }
  std::string link() { return draw_.links[below(draw_.links.size())]; }

  int rank() {
    const int count = draw_.last_rank - draw_.first_rank + 1;
    return draw_.first_rank + static_cast<int>(below(static_cast<uint64_t>(count)));
  }
  // Returns a rank other than `one`, or `one` if there is no other rank.
  int rank_but(int one) {
    const int count = draw_.last_rank - draw_.first_rank + 1;
    if (count == 1) return one;
    const int step = 1 + static_cast<int>(below(static_cast<uint64_t>(count - 1)));
    return draw_.first_rank + (one - draw_.first_rank + step) % count;
  }

  Fault at_message(Kind kind) { return {.kind = kind, .rank = rank(), .message = message()}; }
  Fault by_time(Kind kind) { return {.kind = kind, .rank = rank(), .at_ms = time()}; }
  Fault death() { return coin() ? at_message(Kind::kill) : by_time(Kind::kill); }

 private:
  const Draw& draw_;
  uint64_t state_;
};

std::vector<Fault> two(Drawer& drawer) {
  const Fault one = drawer.by_time(Kind::kill);
  Fault other = one;
  other.rank = drawer.rank_but(one.rank);
  return {one, other};
}

std::vector<Fault> again(Drawer& drawer) {
  const Fault one = drawer.death();
  Fault other = one;
  other.rank = drawer.rank_but(one.rank);
  if (one.message > 0) {
    other.message = drawer.soon_after(one.message, kRecoveryMessages);
  } else {
    other.at_ms = drawer.soon_after(one.at_ms, kRecoveryMs);
  }
  return {one, other};
}

std::vector<Fault> lasting(Drawer& drawer, Fault fault) {
  fault.for_ms = drawer.duration();
  return {fault};
}

Fault cut(Drawer& drawer, uint64_t for_ms) {
  return {.kind = Kind::cut, .at_ms = drawer.time(), .for_ms = for_ms, .link = drawer.link()};
}

// Drops packets between two sets of hosts, temporarily or permanently.
std::vector<Fault> partition(Drawer& drawer) {
  const std::vector<std::string>& hosts = drawer.hosts();
  const uint64_t sides = 1 + drawer.below((uint64_t{1} << (hosts.size() - 1)) - 1);
  const Fault one{.kind = Kind::drop,
                  .at_ms = drawer.time(),
                  .for_ms = drawer.coin() ? 1 + drawer.below(kPartitionMs) : 0};
  // The last host is on the side whose bits are clear, so that side is never empty.
  std::vector<Fault> faults;
  for (size_t i = 0; i < hosts.size(); ++i) {
    for (size_t j = i + 1; j < hosts.size(); ++j) {
      if (((sides >> i) & 1) == ((sides >> j) & 1)) continue;
      faults.push_back(one);
      faults.back().hosts = {hosts[i], hosts[j]};
    }
  }
  return faults;
}

// Drops packets between two hosts. All other hosts still reach both.
Fault pair(Drawer& drawer) {
  const std::vector<std::string>& hosts = drawer.hosts();
  const size_t one = drawer.below(hosts.size());
  const size_t other = (one + 1 + drawer.below(hosts.size() - 1)) % hosts.size();
  return {.kind = Kind::drop,
          .at_ms = drawer.time(),
          .hosts = {hosts[std::min(one, other)], hosts[std::max(one, other)]}};
}

// Loses a host other than the first. The first host has at least as many ranks as any other, so at
// least half of all ranks survive, including rank 0.
Fault lost(Drawer& drawer) {
  const std::vector<std::string>& hosts = drawer.hosts();
  return {.kind = Kind::lose,
          .at_ms = drawer.time(),
          .hosts = {hosts[1 + drawer.below(hosts.size() - 1)]}};
}

// Moves the clock into the past or the future.
Fault clock(Drawer& drawer) {
  const auto shift = static_cast<int64_t>(drawer.below(2 * kMostShiftS + 1)) - kMostShiftS;
  return {.kind = Kind::clock, .at_ms = drawer.time(), .shift_s = shift};
}

using Faults = std::vector<Fault>;
using Recipe = std::function<Faults(Drawer&)>;

const std::vector<std::pair<std::string, Recipe>>& recipes() {
  static const std::vector<std::pair<std::string, Recipe>> all = {
      {"kill", [](Drawer& d) -> Faults { return {d.death()}; }},
      {"two", two},
      {"again", again},
      {"pause", [](Drawer& d) { return lasting(d, d.by_time(Kind::pause)); }},
      {"delay", [](Drawer& d) { return lasting(d, d.at_message(Kind::delay)); }},
      {"truncate", [](Drawer& d) -> Faults { return {d.at_message(Kind::truncate)}; }},
      {"stop", [](Drawer& d) -> Faults { return {d.by_time(Kind::stop)}; }},
      {"stall", [](Drawer& d) -> Faults { return {d.at_message(Kind::stall)}; }},
      {"launcher", [](Drawer& d) -> Faults { return {{.rank = kLauncher, .at_ms = d.time()}}; }},
      {"cut", [](Drawer& d) -> Faults { return {cut(d, 1 + d.below(kShortCutMs))}; }},
      {"sever", [](Drawer& d) -> Faults { return {cut(d, 0)}; }},
      {"partition", partition},
      {"pairs", [](Drawer& d) -> Faults { return {pair(d)}; }},
      {"lost", [](Drawer& d) -> Faults { return {lost(d)}; }},
      {"abort", [](Drawer& d) -> Faults { return {d.at_message(Kind::abort)}; }},
      {"clock", [](Drawer& d) { return lasting(d, clock(d)); }},
      {"swap", [](Drawer& d) -> Faults { return {d.at_message(Kind::swap)}; }},
      {"full", [](Drawer& d) -> Faults { return {{.kind = Kind::full, .bytes = d.bytes()}}; }},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& all_classes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, recipe] : recipes()) all.push_back(name);
    return all;
  }();
  return names;
}

bool cuts_links(const std::string& fault_class) {
  return fault_class == "cut" || fault_class == "sever";
}

bool parts_hosts(const std::string& fault_class) {
  return fault_class == "partition" || fault_class == "pairs" || fault_class == "lost";
}

std::vector<Plan> draw_plans(const Draw& draw) {
  std::vector<Plan> plans;
  for (uint64_t trial = 0; trial < static_cast<uint64_t>(draw.trials); ++trial) {
    const std::string& name = draw.classes[trial % draw.classes.size()];
    const auto recipe = std::ranges::find(recipes(), name, &std::pair<std::string, Recipe>::first);
    Drawer drawer(draw, trial);
    plans.push_back({name, recipe->second(drawer)});
  }
  return plans;
}

}  // namespace tutti::tool::chaos
