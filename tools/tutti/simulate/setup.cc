#include "tools/tutti/simulate/setup.h"

#include <unistd.h>

#include <iostream>
#include <string_view>
#include <utility>

#include "base/parse_number.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/interchange/resolve.h"
#include "collectives/simulate/candidates.h"
#include "topology/channels.h"
#include "topology/networks/load_network.h"
#include "topology/units.h"
#include "training/run/stragglers.h"

namespace tutti::tool {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
}

namespace {

// Maximum number of steps over all ranks of an algorithm that is tried for `auto` or `all`; with
// more than 10 000 ranks, 200 steps per rank.
constexpr int64_t kMostStepsTried = 2'000'000;
constexpr int kMostAsOne = 64;  // maximum number of ranks of a host that are compared for symmetry

double number_in(std::string_view text, const std::string& option, double least) {
  const auto value = parse_number<double>(text);
  if (value && std::isfinite(*value) && *value >= least) return *value;
  refuse(cat(option, ": '", text, "' is not a number of at least ", least), "see --help");
}

// Parses "WHAT:NUMBER".
std::pair<std::string, double> parse_pair(const std::string& text, const std::string& option,
                                          double least) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) refuse(cat(option, " ", text, " has no ':'"), "see --help");
  return {text.substr(0, colon),
          number_in(std::string_view(text).substr(colon + 1), option, least)};
}

// Parses "3" or "rank3".
std::optional<int> parse_rank(std::string_view text, int ranks) {
  if (text.starts_with("rank")) text.remove_prefix(4);
  const auto rank = parse_number<int>(text);
  if (!rank || (*rank >= 0 && *rank < ranks)) return rank;
  refuse(cat("unknown rank ", *rank), cat("ranks are numbered from 0 to ", ranks - 1));
}

void add_late_rank(const std::string& text, int ranks, SimulationOptions& simulation) {
  const auto [what, late] = parse_pair(text, "--straggler", 0);
  const std::optional<int> rank = parse_rank(what, ranks);
  if (!rank) refuse(cat("--straggler: '", what, "' is not a rank"), "write RANK:US");
  for (const auto& [other, its] : simulation.stragglers) {
    if (other == *rank) {
      refuse(cat("--straggler: rank ", *rank, " is given twice"), "give it once");
    }
  }
  simulation.stragglers.emplace_back(*rank, late);
}

// Applies --straggler: RANK:US delays a rank's start, RANK:xF slows its computation. Returns the
// slowdown of each rank.
std::vector<double> add_stragglers(const SimulateOptions& o, int ranks,
                                   SimulationOptions& simulation) {
  std::string slow;
  for (const std::string& text : o.stragglers) {
    if (text.find(":x") == text.npos) {
      add_late_rank(text, ranks, simulation);
      continue;
    }
    for (const std::string& straggler : split(text, ',')) {
      parse_rank(straggler.substr(0, straggler.find(':')), ranks);
    }
    slow += cat(slow.empty() ? "" : ",", text);
  }
  std::vector<double> slowdowns(static_cast<size_t>(ranks), 1);
  for (const auto& [rank, slowdown] : training::stragglers_in(slow)) {
    slowdowns[static_cast<size_t>(rank)] = slowdown;
  }
  return slowdowns;
}

// Returns the number of a host's ranks that can be simulated as one, because they behave alike; 1
// if they do not.
int ranks_as_one(const SimulateOptions& o, const Network& network, int ranks) {
  const int host = network.alike_group_size();
  return o.is_even() && host <= kMostAsOne && ranks % host == 0 ? host : 1;
}

}  // namespace

void take_gpu_class(SimulateOptions& o) {
  if (!o.ranks) refuse("--gpu requires --ranks", "give the number of GPUs by -n");
  const GpuCosts costs = gpu_costs(load_cost_model(), o.gpu);
  const LinkCosts& link = costs.simple;
  // Slices represent thread blocks, which step concurrently, so a step's cost is part of the
  // latency of a path. A path is one link in a mesh, and two links with a switch.
  const double latency_us = (link.latency + link.send + link.recv) * 1e6 / (costs.mesh ? 1 : 2);
  o.topology = cat(costs.mesh ? "full:" : "switch:", *o.ranks, ",bandwidth=", 1e-9 / link.wire,
                   "GB/s,latency=", latency_us, "us");
  if (o.reduce_bandwidth.empty()) {
    o.reduce_bandwidth = cat(costs.blocks * 1e-9 / link.at(0).reduce, "GB/s");
  }
}

SimulatedNetwork::SimulatedNetwork(const SimulateOptions& o)
    : network(load_network(o.topology, o.ranks)), ranks(o.ranks.value_or(network->ranks())) {
  if (ranks > network->ranks()) {
    refuse(cat("the network connects ", network->ranks(), " ranks, not ", ranks),
           "use a larger network or fewer --ranks");
  }
  for (const std::string& what : o.fail) {
    if (const std::optional<int> rank = parse_rank(what, ranks)) {
      simulation.failed_ranks.push_back(*rank);
    } else {
      for (const int link : network->links_named(what)) network->fail(link);
    }
  }
  for (const std::string& text : o.slow) {
    const auto [what, factor] = parse_pair(text, "--slow", 1);
    for (const int link : network->links_named(what)) network->slow(link, factor);
  }
  slowdowns = add_stragglers(o, ranks, simulation);
  simulation.slices = o.slices;
  simulation.overhead_us = o.overhead_us;
  simulation.jitter = o.jitter / 100;
  simulation.seed = o.seed;
  if (!o.reduce_bandwidth.empty()) simulation.reduce_GBps = parse_bandwidth(o.reduce_bandwidth);
  alike = ranks_as_one(o, *network, ranks);
}

std::optional<Rounds> rounds_in_place_of(const SimulateOptions& o, const Algorithm& algorithm,
                                         const Shape& shape, double bytes, const Network& network) {
  if (!o.is_even() || o.slices > 1 || o.overhead_us > 0 || !o.reduce_bandwidth.empty()) return {};
  if (!why_unsupported(algorithm, shape).empty()) return {};
  std::optional<Rounds> rounds = rounds_of(algorithm, shape, bytes);
  if (!rounds) return {};
  const int64_t walked = shape.ranks / ranks_as_one(o, network, shape.ranks);
  return 2 * rounds->count * walked > kMostSteps ? rounds : std::nullopt;
}

namespace {

constexpr char kRings[] = "rings";
constexpr int kMostInRings = 1024;

// Returns rings like NCCL's channels on identical hosts with one card per GPU: ring i enters a host
// at GPU i, visits all others, and leaves through the card of GPU i.
std::vector<std::vector<int>> rings_by_cards(int ranks, int host) {
  std::vector<std::vector<int>> rings(static_cast<size_t>(host));
  for (int ring = 0; ring < host; ++ring) {
    for (int first = 0; first < ranks; first += host) {
      for (int i = 0; i < host; ++i) {
        rings[static_cast<size_t>(ring)].push_back(first + (ring + i) % host);
      }
    }
  }
  return rings;
}

// Returns an all-reduce that uses several rings concurrently: on several identical hosts whose
// ranks do not forward data, the rings of rings_by_cards(); otherwise the rings that `tutti topo`
// finds.
const Algorithm& found_rings(const Network& network, int ranks) {
  std::vector<std::vector<int>> rings;
  const int host = network.alike_group_size();
  if (host > 1 && ranks > host && ranks % host == 0 && !network.graph().ends_forward()) {
    rings = rings_by_cards(ranks, host);
  } else {
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks; ++rank) nodes.push_back(network.node_of(rank));
    const ChannelSearch search = find_channels(network.graph(), nodes, ChannelKind::ring);
    for (const Channel& ring : search.found.channels) rings.push_back(ring.order);
  }
  return import_text(Json{{"rings", rings}}.dump(), kRings);
}

}  // namespace

std::vector<const Algorithm*> algorithms_to_play(const SimulateOptions& o, Collective collective,
                                                 const Shape& shape, double bytes, Network& network,
                                                 size_t most_for_auto) {
  if (o.algorithm == kRings && collective == Collective::all_reduce) {
    return {&found_rings(network, shape.ranks)};
  }
  if (!o.tries_several()) return {&resolve_algorithm(collective, o.algorithm)};
  show_progress("looking for algorithms", -1);
  const auto candidates = simulation_candidates(
      collective, shape, bytes, network, std::max(kMostStepsTried, int64_t{200} * shape.ranks));
  std::vector<const Algorithm*> chosen;
  const size_t most = o.algorithm == "all" ? candidates.size() : most_for_auto;
  for (const SimulationCandidate& candidate : candidates) {
    if (!candidate.excluded.empty()) continue;
    if (chosen.size() == most) break;
    chosen.push_back(candidate.algorithm);
  }
  for (const SimulationCandidate& candidate : candidates) {
    if (candidate.too_long && rounds_in_place_of(o, *candidate.algorithm, shape, bytes, network)) {
      chosen.push_back(candidate.algorithm);
    }
  }
  // If ranks forward the data of other ranks, as in a mesh or torus, few algorithms use all links.
  // The rings that `tutti topo` finds are therefore tried as well.
  if (network.graph().ends_forward() && collective == Collective::all_reduce && shape.ranks > 2 &&
      shape.ranks <= kMostInRings && o.fail.empty()) {
    chosen.push_back(&found_rings(network, shape.ranks));
  }
  if (!chosen.empty()) return chosen;
  std::string reasons;
  for (const SimulationCandidate& candidate : candidates) {
    reasons +=
        cat(reasons.empty() ? "" : "; ", candidate.algorithm->name, ": ", candidate.excluded);
  }
  throw Error(
      ErrorCode::unsupported,
      cat("no algorithm for ", name(collective), " can be simulated on ", shape.ranks, " ranks"),
      {.cause = reasons, .remedy = "name one with --algorithm, or use fewer ranks"});
}

void show_progress(const std::string& what, double part) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::cerr << cat("\r\033[K", what, part < 0 ? "" : cat(": ", std::lround(100 * part), "%"));
}

void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) std::cerr << "\r\033[K";
}

std::string busiest_link(const SimulationResult& result, const Network& network) {
  if (!result.busiest) return "-";
  return cat(network.name(*result.busiest), " (", std::lround(100 * result.busiest_part), "%)");
}

void add_busiest_link(const SimulationResult& result, const Network& network, Json& json) {
  if (!result.busiest) return;
  json["busiest_link"] = network.name(*result.busiest);
  json["busiest_link_use"] = result.busiest_part;
}

}  // namespace tutti::tool
