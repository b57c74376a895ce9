#include "training/simulate/step.h"

#include <algorithm>
#include <limits>

namespace tutti::training {

namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

std::vector<std::vector<int32_t>> ranks_that_sum(const pipeline::Plan& plan, int data, int tensor) {
  std::vector<std::vector<int32_t>> groups;
  for (int stage = 0; stage < plan.schedule.ranks; ++stage) {
    const std::vector<int>& holders = plan.holders[at(plan.ranks[at(stage)].chunks.front())];
    if (holders.front() != stage) continue;
    for (int32_t place = 0; place < tensor; ++place) {
      std::vector<int32_t>& members = groups.emplace_back();
      for (const int holder : holders) {
        for (int32_t i = 0; i < data; ++i) members.push_back((holder * data + i) * tensor + place);
      }
    }
  }
  return groups;
}

SimulatedStep simulate_step(const StepSchedule& step, Network& network,
                            const SimulationOptions& options) {
  SimulatedStep result{.network = simulate(step.schedule, network, options)};
  result.compute_us = std::ranges::max(step.compute_us);
  const double time = result.network.time_us;
  for (const double compute : step.compute_us) result.idle_us.push_back(time - compute);
  SimulationOptions instant = options;
  instant.instant_messages = true;
  instant.overhead_us = 0;
  instant.reduce_GBps = std::numeric_limits<double>::infinity();
  instant.give_up_us = std::numeric_limits<double>::infinity();
  const double alone = simulate(step.computing, network, instant).time_us;
  result.bubble_us = std::max(0.0, alone - result.compute_us);
  result.exposed_us = std::max(0.0, time - alone);
  result.efficiency = time > 0 ? result.compute_us / time : 1;
  return result;
}

}  // namespace tutti::training
