#include "tools/tutti/on_machine.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file_text.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/cost/imagined_machine.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/program/bus_factor.h"
#include "tools/launcher/placement.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/groups.h"
#include "topology/layout.h"
#include "transport/path_class.h"
#include "transport/paths/fabrics.h"

namespace tutti::tool {

namespace {

std::vector<Place> places_of(const MachineQuestion& question) {
  std::vector<Place> places;
  if (question.group.empty()) {
    for (const Domain& domain : place_ranks(question.ranks).domains) places.push_back({"", domain});
    return places;
  }
  const std::vector<int> groups = parse_groups(question.group, question.ranks);
  for (size_t host = 0; host < groups.size(); ++host) {
    places.insert(places.end(), static_cast<size_t>(groups[host]), {std::to_string(host), {}});
  }
  return places;
}

// Returns the path class between hosts. `auto` selects the fastest measured class. If no fabric was
// measured, it selects the class for which this host has a card, or tcp.
PathClass fabric_of(const Transports& transports, const CostModel& model) {
  if (transports.fabric != "auto") return parse_path_class(transports.fabric).value();
  if (const auto measured = fabrics_quicker_than_tcp(model)) {
    return measured->empty() ? PathClass::tcp : measured->front();
  }
  const std::vector<std::string> cards = fabric_candidates();
  return cards.empty() ? PathClass::tcp : parse_path_class(cards.front()).value();
}

std::string describe(const std::string& asked, PathClass fabric, const tutti::Hosts& hosts) {
  if (asked != "auto") return asked;
  return cat("auto: shm", hosts.count() > 1 ? cat('+', name(fabric)) : "");
}

Planner planner_for(const OnMachine& on, const Transports& transports, const CostModel& model) {
  return Planner(
      on.shape,
      imagined_machine(on.hosts, transports.near_by_shm, fabric_of(transports, model), model),
      load_algorithm_files().algorithms);
}

}  // namespace

std::string source_of(const std::string& file) {
  const std::string kept = file.empty() ? cost_model_file() : file;
  if (!kept.empty() && std::filesystem::exists(kept)) return kept;
  return "defaults (`tutti tune` measures this machine's)";
}

CostModel cost_model_in(const std::string& file) {
  return file.empty() ? load_cost_model() : parse_cost_model(file_text(file, FileKind::cost_model));
}

OnMachine::OnMachine(const MachineQuestion& question)
    : OnMachine(question, cost_model_in(question.file)) {}

OnMachine::OnMachine(const MachineQuestion& question, const CostModel& model)
    : places(places_of(question)),
      hosts(tutti::Hosts::of(places)),
      transport(describe(question.transport, fabric_of(parse_transports(question.transport), model),
                         hosts)),
      costs(source_of(question.file)),
      shape{.ranks = question.ranks, .layout = Layout::of(places)},
      planner(planner_for(*this, parse_transports(question.transport), model)) {}

double busbw_GBps(Collective collective, int ranks, double bytes, double seconds) {
  return bytes / seconds / 1e9 * bus_factor(collective, ranks);
}

uint64_t block_bytes(Collective collective, int ranks, uint64_t bytes) {
  return has_blocks(collective) ? bytes / static_cast<uint64_t>(ranks) : bytes;
}

Grade grade_wanted(Collective collective, bool deterministic) {
  const bool canonical = deterministic || settings().get_bool("TUTTI_DETERMINISTIC");
  return canonical && reduces(collective) ? Grade::canonical : Grade::same_bits;
}

int simulate_on_machine(const MachineSimulation& q) {
  OnMachine on(q.machine);
  const int ranks = q.machine.ranks;
  Json results = Json::array();
  std::printf("%s on %s: %d ranks on %d host%s, %s\n%14s  %-26s %12s %12s %12s %12s\n",
              std::string(name(q.collective)).c_str(), on.costs.c_str(), ranks, on.hosts.count(),
              on.hosts.count() == 1 ? "" : "s", on.transport.c_str(), "bytes", "algorithm",
              "time us", "low us", "high us", "busbw GB/s");
  for (const double bytes : q.bytes) {
    const CallToPlan wanted = {
        .collective = q.collective,
        .bytes = block_bytes(q.collective, ranks, static_cast<uint64_t>(bytes)),
        .at_least = grade_wanted(q.collective, false)};
    const Candidate chosen = on.planner.explain(wanted).front();
    const double us = 1e6 * chosen.prediction.seconds;
    const Interval interval = on.planner.machine().model.errors.around(us, bytes);
    const double busbw = busbw_GBps(q.collective, ranks, bytes, chosen.prediction.seconds);
    std::printf("%14.0f  %-26s %12.2f %12.2f %12.2f %12.3f\n", bytes,
                chosen.algorithm->name.c_str(), us, interval.low, interval.high, busbw);
    results.push_back({{"bytes", static_cast<uint64_t>(bytes)},
                       {"algorithm", chosen.algorithm->name},
                       {"time_us", us},
                       {"time_us_low", interval.low},
                       {"time_us_high", interval.high},
                       {"algbw_GBps", bytes / us * 1e-3},
                       {"busbw_GBps", busbw}});
  }
  std::printf("Our algorithms; %s.\n", kIntervalMeaning);
  const Json document = {{"collective", name(q.collective)}, {"topology", q.machine.file},
                         {"cluster", q.machine.file},        {"ranks", ranks},
                         {"hosts", on.hosts.count()},        {"source", on.costs}};
  write_results(q.json, document, results);
  return 0;
}

}  // namespace tutti::tool
