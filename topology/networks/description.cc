// Parser of short network descriptions.

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "topology/networks/load_network.h"
#include "topology/units.h"

namespace tutti {

namespace {

constexpr LinkSpeed kBetweenHosts{};
constexpr LinkSpeed kInsideHost{450, 0.25, LinkClass::nvlink};
constexpr int kMostRanks = kMostNodes;

[[noreturn]] void refuse(const std::string& what, const std::string& remedy = "") {
  throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
}

int parse_count(std::string_view text, std::string_view what) {
  const auto value = parse_number<int>(text);
  if (!value || *value < 1 || *value > kMostRanks) {
    refuse(cat("invalid ", what, " '", text, "'"), cat("give a number from 1 to ", kMostRanks));
  }
  return *value;
}

// Arguments of a description: "fat-tree:hosts=64,gpus=8" has a kind and its parameters. Unknown
// parameters are rejected.
class Words {
 public:
  explicit Words(const std::string& text) : text_(text) {
    const size_t colon = text.find(':');
    kind_ = text.substr(0, colon);
    if (colon == std::string::npos) return;
    for (const std::string& word : split(text.substr(colon + 1), ',')) {
      const size_t equals = word.find('=');
      const std::string key = equals == std::string::npos ? "size" : word.substr(0, equals);
      const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
      if (!values_.emplace(key, value).second) refuse(cat("'", text, "' says ", key, " twice"));
    }
  }

  const std::string& kind() const { return kind_; }
  std::optional<std::string> take(const std::string& key) {
    asked_.push_back(key);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    std::string value = found->second;
    values_.erase(found);
    return value;
  }
  std::optional<int> take_count(const std::string& key) {
    const std::optional<std::string> value = take(key);
    if (!value) return std::nullopt;
    return parse_count(*value, cat(key, " in '", text_, "'"));
  }
  int take_count(const std::string& key, int fallback) {
    return take_count(key).value_or(fallback);
  }
  LinkSpeed take_speed(LinkSpeed speed, const std::string& bandwidth = "bandwidth",
                       const std::string& latency = "latency") {
    if (const auto value = take(bandwidth)) speed.GBps = parse_bandwidth(*value);
    if (const auto value = take(latency)) speed.latency_us = parse_latency(*value);
    return speed;
  }
  void end() const {
    if (values_.empty()) return;
    std::string known;
    for (const std::string& key : asked_) known += cat(known.empty() ? "" : ", ", key);
    refuse(cat("unknown parameter '", values_.begin()->first, "' in '", text_, "'"),
           cat(kind_, " accepts ", known));
  }

 private:
  std::string text_;
  std::string kind_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> asked_;
};

// Computes a size that the description does not state from the number of ranks of the network.
class Open {
 public:
  explicit Open(std::optional<int> ranks) : ranks_(ranks) {}
  int size(Words& words, int per_end = 1) {
    if (const std::optional<int> size = words.take_count("size")) return *size;
    return left(words, per_end);
  }
  int left(const Words& words, int per_end) const {
    if (!ranks_) refuse(cat(words.kind(), " needs a size, such as ", words.kind(), ":8"));
    return (*ranks_ + per_end - 1) / per_end;
  }

 private:
  std::optional<int> ranks_;
};

std::vector<TreeLevel> two_levels(int ends, int per_leaf, int up, LinkSpeed speed) {
  const int leaves = (ends + per_leaf - 1) / per_leaf;
  std::vector<TreeLevel> levels = {{per_leaf, 1, speed, "leaf"}};
  if (leaves > 1) levels.push_back({leaves, up, speed, "spine"});
  return levels;
}

// Returns the levels of a k-ary fat tree: three levels of switches with k ports. Half of a switch's
// ports lead up, except on the highest level. M. Al-Fares, A. Loukissas, A. Vahdat: A Scalable,
// Commodity Data Center Network Architecture. SIGCOMM 2008.
std::vector<TreeLevel> k_ary(int k, LinkSpeed speed) {
  if (k % 2 != 0)
    refuse(cat("k=", k, " is odd"),
           "use an even k: switches of a fat tree have as many ports up as down");
  return {
      {k / 2, 1, speed, "leaf"}, {k / 2, k / 2, speed, "aggregation"}, {k, k / 2, speed, "core"}};
}

// Adds the switch inside a host with several GPUs, unless earlier stages define the inside of the
// host. Returns the number of GPUs per host.
int take_host(Words& words, int usual, Structure& structure) {
  if (!structure.stages.empty()) return structure.ranks();
  const int gpus = words.take_count("gpus", usual);
  const LinkSpeed nvlink = words.take_speed(kInsideHost, "nvlink", "nvlink-latency");
  if (gpus == 1) return gpus;
  structure.stages.push_back(switch_pattern(gpus, nvlink));
  structure.stage_is_inside_host = true;
  return gpus;
}

int take_nics(Words& words, int gpus, Structure& structure, LinkSpeed speed) {
  const int nics = words.take_count("nics", gpus);
  if (gpus % nics != 0) refuse(cat(nics, " cards cannot be shared evenly by ", gpus, " GPUs"));
  structure.ranks_per_end = gpus / nics;
  structure.to_end = {speed.GBps, 0, LinkClass::pci};
  return nics;
}

void check_ranks(int hosts, int gpus) {
  if (int64_t{hosts} * gpus <= kMostRanks) return;
  refuse(cat("a tree of ", hosts, " hosts with ", gpus, " ranks each is too large"));
}

void add_fat_tree(Words& words, const Open& open, Structure& structure) {
  const LinkSpeed speed = words.take_speed(kBetweenHosts);
  const bool is_first = structure.stages.empty();  // otherwise `open` counts hosts
  const int gpus = take_host(words, 1, structure);
  const int nics = take_nics(words, gpus, structure, speed);
  const std::optional<int> k = words.take_count("k");
  std::optional<int> hosts = words.take_count("hosts");
  if (!hosts) hosts = words.take_count("size");
  if (k) {
    const std::vector<TreeLevel> levels = k_ary(*k, speed);
    const int64_t room = int64_t{*k} * *k * *k / 4 / nics;
    if (room > kMostRanks || room < 1) refuse(cat("k=", *k, " makes a tree of ", room, " hosts"));
    if (!hosts) hosts = static_cast<int>(room);
    if (*hosts > room) refuse(cat("k=", *k, " has room for ", room, " hosts, not for ", *hosts));
    check_ranks(*hosts, gpus);
    structure.fabric = tree_pattern(*hosts * nics, levels);
    return;
  }
  if (!hosts) hosts = open.left(words, is_first ? gpus : 1);
  check_ranks(*hosts, gpus);
  const int ends = *hosts * nics;
  const int per_leaf = std::min(words.take_count("per-leaf", std::min(*hosts, 32)), *hosts) * nics;
  const int up = words.take_count("up", per_leaf);
  structure.fabric = tree_pattern(ends, two_levels(ends, per_leaf, up, speed));
}

void add_rails(Words& words, const Open& open, Structure& structure) {
  const LinkSpeed speed = words.take_speed(kBetweenHosts);
  const bool is_first = structure.stages.empty();  // otherwise `open` counts hosts
  const int gpus = take_host(words, 8, structure);
  std::optional<int> hosts = words.take_count("hosts");
  if (!hosts) hosts = words.take_count("size");
  if (!hosts) hosts = open.left(words, is_first ? gpus : 1);
  const int per_leaf = words.take_count("per-leaf", *hosts);
  const int up = words.take_count("up", per_leaf);
  structure.stages.push_back(tree_pattern(*hosts, two_levels(*hosts, per_leaf, up, speed)));
}

void add_dragonfly(Words& words, Structure& structure) {
  Dragonfly shape;
  shape.end = shape.local = shape.global = words.take_speed(kBetweenHosts);
  shape.global = words.take_speed(shape.global, "global-bandwidth", "global-latency");
  shape.routers = words.take_count("routers", 4);
  shape.ends = words.take_count("hosts", 2);
  shape.globals = words.take_count("global", 2);
  const int64_t most = int64_t{shape.routers} * shape.globals + 1;
  if (most > kMostRanks) refuse(cat("a dragonfly of ", most, " groups is too large"));
  shape.groups = words.take_count("groups", static_cast<int>(most));
  const int64_t ends = int64_t{shape.groups} * shape.routers * shape.ends;
  if (ends > kMostRanks) refuse(cat("a dragonfly of ", ends, " hosts is too large"));
  structure.fabric = dragonfly_pattern(shape);
}

void add_grid(Words& words, bool wraps, const Open& open, Structure& structure) {
  const LinkSpeed speed = words.take_speed(kBetweenHosts);
  const std::optional<std::string> sizes = words.take("size");
  if (!sizes) {
    const int ranks = open.left(words, 1);
    const int side = static_cast<int>(std::lround(std::sqrt(ranks)));
    if (side * side != ranks)
      refuse(cat(words.kind(), " needs a size, such as ", words.kind(), ":4x4"));
    structure.stages.push_back(ring_pattern(side, wraps, speed));
    structure.stages.push_back(ring_pattern(side, wraps, speed));
    return;
  }
  const std::vector<std::string> sides = split(*sizes, 'x');
  if (static_cast<size_t>(std::ranges::count(*sizes, 'x')) + 1 != sides.size()) {
    refuse(cat("invalid size '", *sizes, "' of a ", words.kind()), "write it as 4x4x4");
  }
  for (const std::string& side : sides) {
    structure.stages.push_back(
        ring_pattern(parse_count(side, cat("side of a ", words.kind())), wraps, speed));
  }
}

void add(Words& words, bool innermost_of_several, Open open, Structure& structure) {
  const std::string& kind = words.kind();
  const LinkSpeed usual = innermost_of_several ? kInsideHost : kBetweenHosts;
  if (kind == "ring") {
    const LinkSpeed speed = words.take_speed(usual);
    structure.stages.push_back(ring_pattern(open.size(words), true, speed));
  } else if (kind == "switch" || kind == "full") {
    const LinkSpeed speed = words.take_speed(usual);
    const int size = open.size(words);
    structure.stages.push_back(kind == "full" ? full_pattern(size, speed)
                                              : switch_pattern(size, speed));
  } else if (kind == "torus" || kind == "mesh") {
    add_grid(words, kind == "torus", open, structure);
  } else if (kind == "fat-tree") {
    add_fat_tree(words, open, structure);
  } else if (kind == "rail") {
    add_rails(words, open, structure);
  } else if (kind == "dragonfly") {
    add_dragonfly(words, structure);
  } else {
    const std::vector<std::string> kinds = {"ring",  "switch",   "full", "mesh",
                                            "torus", "fat-tree", "rail", "dragonfly"};
    const std::string near = nearest(kind, kinds);
    refuse(cat("unknown network or file '", kind, "'"),
           cat(near.empty() ? "" : cat("did you mean ", near, "? "),
               "give a file's path, or one of ring, switch, full, mesh, torus, fat-tree, "
               "rail, dragonfly"));
  }
  words.end();
}

}  // namespace

Structure parse_structure(const std::string& description, std::optional<int> ranks) {
  Structure structure;
  const std::vector<std::string> stages = split(description, ';');
  if (stages.empty()) refuse("the network description is empty", "write for example switch:8");
  for (size_t i = 0; i < stages.size(); ++i) {
    Words words(stages[i]);
    if (structure.fabric)
      refuse(cat("'", description, "' puts a stage outside ", split(stages[i - 1], ':')[0]),
             "put that stage last");
    std::optional<int> left;
    if (ranks && i + 1 == stages.size()) {
      int inner = 1;
      for (const auto& stage : structure.stages) inner *= stage->ends();
      left = (*ranks + inner - 1) / inner;
    }
    const bool innermost = i == 0 && stages.size() > 1;
    add(words, innermost, Open(left), structure);
    if (innermost && words.kind() == "switch") structure.stage_is_inside_host = true;
    int64_t size = 1;
    for (const auto& stage : structure.stages) {
      size *= stage->ends();
      if (size > kMostRanks) {
        refuse(cat("'", description, "' has more than ", kMostRanks, " ranks"));
      }
    }
  }
  int inner = 1;
  for (const auto& stage : structure.stages) inner *= stage->ends();
  if (structure.fabric && structure.ranks() % inner != 0) {
    refuse(cat("'", description, "': ", inner, " ranks inside do not divide ", structure.ranks()));
  }
  return structure;
}

}  // namespace tutti
