#include "bench/pair_costs.h"

#include <algorithm>
#include <map>

#include "base/median.h"

namespace tutti::bench {
namespace {

using Names = std::vector<std::string>;

// Sets the latency: the message's time minus the send and receive overheads of both processors.
void learn_latency(const std::vector<double>& measured_us, LinkCosts& link) {
  if (measured_us.empty()) return;
  link.latency = std::max(0.0, median(measured_us) * 1e-6 - link.send - link.recv);
}

// Returns the GB/s that each host sends.
std::map<std::string, double> reached(const Names& host_of, const std::vector<MeasuredPair>& alone,
                                      const std::vector<MeasuredPair>& together) {
  std::map<std::string, double> most;
  std::map<std::string, double> sums;
  const auto host = [&](int rank) { return host_of[static_cast<size_t>(rank)]; };
  for (const MeasuredPair& pair : alone) {
    if (host(pair.from) == host(pair.to)) continue;
    double& best = most[host(pair.from)];
    best = std::max(best, pair.GBps);
  }
  for (const MeasuredPair& pair : together) {
    if (host(pair.from) != host(pair.to)) sums[host(pair.from)] += pair.GBps;
  }
  for (const auto& [name, sum] : sums) most[name] = std::max(most[name], sum);
  return most;
}

}  // namespace

void learn_from_pairs(const Names& host_of, const std::vector<MeasuredPair>& alone,
                      const std::vector<MeasuredPair>& together, PathClass between,
                      CostModel& model) {
  std::vector<double> near_us;
  std::vector<double> far_us;
  for (const MeasuredPair& pair : alone) {
    const bool near =
        host_of[static_cast<size_t>(pair.from)] == host_of[static_cast<size_t>(pair.to)];
    (near ? near_us : far_us).push_back(pair.latency_us);
  }
  learn_latency(near_us, model.shm);
  if (far_us.empty()) return;
  LinkCosts& far = model.own_link(between);
  learn_latency(far_us, far);
  // A call waits for the slowest host.
  double slowest = 0;
  for (const auto& [host, GBps] : reached(host_of, alone, together)) {
    if (GBps > 0) slowest = std::max(slowest, 1e-9 / GBps);
  }
  if (slowest > 0) far.wire = slowest;
}

}  // namespace tutti::bench
