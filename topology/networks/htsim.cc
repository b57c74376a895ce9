// Reader of htsim's fat trees.

#include <algorithm>
#include <map>
#include <optional>

#include "topology/networks/file_formats.h"

namespace tutti {

namespace {

// The entries of a tier: name to value and line.
using TierEntries = std::map<std::string, std::pair<int, int>>;  // value, and line

constexpr std::string_view kTierWords[] = {"Downlink_speed_Gbps", "Radix_Down",        "Radix_Up",
                                           "Downlink_Latency_ns", "Switch_Latency_ns", "Bundle",
                                           "Oversubscribed",      "Queue_Down",        "Queue_Up"};

int entry_of(const TextFile& file, const TierEntries& tier, size_t number, const std::string& what,
             std::optional<int> fallback = {}) {
  const auto found = tier.find(what);
  if (found != tier.end()) return found->second.first;
  if (fallback) return *fallback;
  file.refuse(file.lines.back().number, "tier ", number, " lacks ", what);
}

int quotient(const TextFile& file, const TierEntries& tier, int value, int divisor) {
  if (divisor > 0 && value > 0 && value % divisor == 0) return value / divisor;
  file.refuse(tier.empty() ? 1 : tier.begin()->second.second, "the bundle size ", divisor,
              " does not divide the ", value, " ports of that switch");
}

std::vector<TreeLevel> levels_of(const TextFile& file, const std::vector<TierEntries>& tiers) {
  std::vector<TreeLevel> levels;
  int switch_latency = 0;  // latency of the switches of the tier below
  for (size_t i = 0; i < tiers.size(); ++i) {
    const TierEntries& tier = tiers[i];
    const int bundle = entry_of(file, tier, i, "Bundle", 1);
    const int latency = entry_of(file, tier, i, "Switch_Latency_ns", 0);
    TreeLevel level;
    level.down = quotient(file, tier, entry_of(file, tier, i, "Radix_Down"), bundle);
    if (i > 0)
      level.up = quotient(file, tier, entry_of(file, tiers[i - 1], i - 1, "Radix_Up"), bundle);
    level.speed.GBps = entry_of(file, tier, i, "Downlink_speed_Gbps") * 0.125 * bundle;
    // Half of a switch's latency is added to the links on each side of it.
    level.speed.latency_us = 1e-3 * (entry_of(file, tier, i, "Downlink_Latency_ns", 0) +
                                     (latency + switch_latency) / 2.0);
    if (!(level.speed.GBps > 0))
      file.refuse(tier.begin()->second.second, "a speed must be above 0");
    switch_latency = latency;
    level.name = i == 0 ? "leaf" : i + 1 == tiers.size() ? "core" : "aggregation";
    if (i == 1 && tiers.size() == 2) level.name = "spine";
    levels.push_back(std::move(level));
  }
  return levels;
}

}  // namespace

std::unique_ptr<Network> read_htsim(const TextFile& file) {
  std::map<std::string, int> head;
  std::vector<TierEntries> tiers;
  for (const TextLine& line : file.lines) {
    const std::string& word = line.words[0];
    if (line.words.size() != 2) file.refuse(line.number, "expected a word and a number");
    const int value = file.parse_whole(line.number, line.words[1], word, 0, 1'000'000'000);
    if (word == "Tier") {
      if (value != static_cast<int>(tiers.size())) {
        file.refuse(line.number, "expected tier ", tiers.size(), ", found tier ", value);
      }
      tiers.emplace_back();
    } else if (word == "Nodes" || word == "Tiers" || word == "Podsize") {
      if (!head.emplace(word, value).second) file.refuse(line.number, word, " appears twice");
    } else if (tiers.empty() || std::ranges::count(kTierWords, word) == 0) {
      file.refuse(line.number, "'", word, "' is not allowed here");
    } else if (!tiers.back().emplace(word, std::pair(value, line.number)).second) {
      file.refuse(line.number, word, " appears twice in tier ", tiers.size() - 1);
    }
  }
  const int last = file.lines.back().number;
  if (head["Nodes"] < 1 || head["Nodes"] > kMostNodes)
    file.refuse(last, "Nodes is missing or invalid");
  if (head["Tiers"] != static_cast<int>(tiers.size()) || tiers.empty()) {
    file.refuse(last, "the file declares ", head["Tiers"], " tiers but has ", tiers.size());
  }
  Structure structure;
  try {
    structure.fabric = tree_pattern(head["Nodes"], levels_of(file, tiers));
  } catch (const Error& error) {
    file.refuse(last, error.what());
  }
  return std::make_unique<Network>(std::move(structure));
}

}  // namespace tutti
