#include "training/planner/local/host_prices.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "base/median.h"
#include "collectives/cost/imagined_machine.h"
#include "topology/layout.h"

namespace tutti::training::planner {

namespace {

// Returns the bytes per second of y += x over arrays beyond the caches, which moves three values
// per element.
double memory_rate() {
  constexpr size_t kElements = 4 << 20;
  constexpr int kRuns = 5;
  using Clock = std::chrono::steady_clock;
  std::vector<float> x(kElements, 1.0f);
  std::vector<float> y(kElements, 0.0f);
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < kElements; ++i) y[i] += x[i];
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    rates.push_back(3 * sizeof(float) * kElements / seconds);
  }
  return median(rates);
}

double rate_beside_others(int processors) {
  std::vector<double> rates(static_cast<size_t>(processors));
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < rates.size(); ++i) {
      others.emplace_back([&rates, i] { rates[i] = memory_rate(); });
    }
    rates[0] = memory_rate();
  }
  return median(rates);
}

}  // namespace

HostPrices::HostPrices(int processors)
    : processors_(processors),
      bytes_per_second_(rate_beside_others(processors)),
      costs_(load_cost_model()) {}

double HostPrices::collective(Collective collective, int ranks, double bytes, double processors) {
  if (ranks == 1) return 0;
  const int cores = std::clamp(static_cast<int>(std::lround(processors)), 1, ranks);
  const double slower = std::max(1.0, 1 / processors);
  const auto block = static_cast<uint64_t>(has_blocks(collective) ? bytes / ranks : bytes);
  const uint64_t typical = typical_size(std::max<uint64_t>(block, 1));
  const auto [known, is_new] = known_.try_emplace({collective, ranks, cores, typical}, 0.0);
  if (is_new) {
    std::unique_ptr<Planner>& planner = planners_[{ranks, cores}];
    if (!planner) {
      const std::vector<Place> places(static_cast<size_t>(ranks), Place{"", {}});
      CostModel costs = costs_;
      costs.cores = cores;
      planner = std::make_unique<Planner>(
          Shape{.ranks = ranks, .layout = Layout::of(places)},
          imagined_machine(Hosts::of(places), /*shm=*/true, PathClass::tcp, costs));
    }
    known->second =
        planner->explain({.collective = collective, .bytes = typical}).front().prediction.seconds;
  }
  // The block may be up to 1.4 times as large as the smallest size of its class.
  const double part = block > 0 ? static_cast<double>(block) / static_cast<double>(typical) : 1;
  return slower * known->second * std::max(1.0, part);
}

double HostPrices::message(double bytes) const {
  const LinkCosts& link = costs_.shm;
  const ByteCosts each = link.at(static_cast<uint64_t>(bytes));
  return link.send + link.recv + link.latency + bytes * (each.send + each.recv);
}

}  // namespace tutti::training::planner
