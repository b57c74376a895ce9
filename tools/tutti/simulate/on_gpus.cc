// Implements tutti simulate --gpu: predicts the time of a kernel that runs a collective inside one
// host, as `tutti explain --gpu` does. Calls with faults or simulation options, such as a straggler
// or a slow link, are simulated instead (simulate.cc).
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/gpu_planner.h"
#include "collectives/interchange/resolve.h"
#include "collectives/program/bus_factor.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/explain.h"
#include "tools/tutti/named.h"
#include "tools/tutti/on_machine.h"
#include "tools/tutti/simulate/setup.h"

namespace tutti::tool {

namespace {

struct Priced {
  double bytes = 0;
  std::string algorithm;
  std::string protocol;
  double time_us = 0;
};

Priced priced(const GpuCandidate& candidate, double bytes) {
  return {.bytes = bytes,
          .algorithm = candidate.choice.algorithm->name,
          .protocol = std::string(name(candidate.choice.protocol)),
          .time_us = candidate.prediction.seconds * 1e6};
}

// Returns each algorithm with its best protocol, the fastest first. Unless --algorithm is `all`,
// returns only the first of these.
std::vector<Priced> price(const SimulateOptions& o, GpuPlanner& planner, const CallToPlan& wanted,
                          double bytes) {
  std::vector<Priced> rows;
  if (!o.tries_several()) {
    const Algorithm& algorithm = resolve_algorithm(wanted.collective, o.algorithm);
    for (const GpuProtocol protocol : {GpuProtocol::simple, GpuProtocol::lines}) {
      const GpuCandidate candidate = planner.price(algorithm, protocol, wanted);
      if (candidate.excluded.empty()) rows.push_back(priced(candidate, bytes));
    }
  } else {
    for (const GpuCandidate& candidate : planner.explain(wanted)) {
      if (candidate.excluded.empty()) rows.push_back(priced(candidate, bytes));
    }
  }
  if (rows.empty()) throw no_algorithm({.ranks = *o.ranks}, wanted);
  std::ranges::stable_sort(rows, {}, &Priced::time_us);
  std::vector<Priced> best;
  for (const Priced& row : rows) {
    if (std::ranges::find(best, row.algorithm, &Priced::algorithm) == best.end()) {
      best.push_back(row);
    }
  }
  if (o.algorithm != "all") best.resize(1);
  return best;
}

}  // namespace

int simulate_on_gpus(const SimulateOptions& o, Collective collective,
                     const std::vector<double>& sizes) {
  if (!o.ranks) refuse("--gpu requires --ranks", "give the number of GPUs by -n");
  GpuPlanner planner({.ranks = *o.ranks, .root = o.root}, gpu_costs(load_cost_model(), o.gpu));
  const double factor = bus_factor(collective, *o.ranks);
  Json document = {{"collective", o.what}, {"topology", o.gpu}, {"ranks", *o.ranks}};
  Json results = Json::array();
  std::printf("%s on %d GPUs of class %s: predicted kernel times\n", o.what.c_str(), *o.ranks,
              o.gpu.c_str());
  std::printf("%14s  %-28s %-8s %14s %12s %12s\n", "bytes", "algorithm", "protocol", "time us",
              "algbw GB/s", "busbw GB/s");
  for (const double bytes : sizes) {
    const CallToPlan wanted{
        .collective = collective,
        .root = o.root,
        .bytes = block_bytes(collective, *o.ranks, static_cast<uint64_t>(bytes))};
    const std::vector<Priced> rows = price(o, planner, wanted, bytes);
    for (const Priced& row : rows) {
      const bool is_best = &row == &rows.front();
      const double algbw = bytes / row.time_us * 1e-3;
      std::printf("%14.0f %c%-28s %-8s %14.2f %12.3f %12.3f\n", bytes,
                  is_best && o.algorithm == "all" ? '>' : ' ', row.algorithm.c_str(),
                  row.protocol.c_str(), row.time_us, algbw, algbw * factor);
      results.push_back({{"bytes", static_cast<uint64_t>(bytes)},
                         {"algorithm", row.algorithm},
                         {"protocol", row.protocol},
                         {"time_us", row.time_us},
                         {"algbw_GBps", algbw},
                         {"busbw_GBps", algbw * factor},
                         {"best", is_best}});
    }
  }
  write_results(o.json, document, results);
  return 0;
}

}  // namespace tutti::tool
