#include "collectives/cost/gpu_costs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "collectives/cost/gpu_planner.h"

namespace tutti {
namespace {

TEST(Probe, Ladder) {
  for (const char* gpu : {"a100", "h100", "b200", "pcie4"}) {
    GpuPlanner planner({.ranks = 8}, gpu_costs(CostModel::defaults(), gpu));
    const auto t0 = std::chrono::steady_clock::now();
    for (uint64_t bytes = 8; bytes <= (1u << 30); bytes *= 4) {
      const Wanted wanted{.collective = Collective::all_reduce, .bytes = bytes};
      const auto t1 = std::chrono::steady_clock::now();
      const GpuChoice choice = planner.choose(wanted);
      const auto t2 = std::chrono::steady_clock::now();
      const auto all = planner.explain(wanted);
      std::printf("%-6s %10lu  %-22s %-6s %2d | ", gpu, bytes, choice.algorithm->name.c_str(),
                  std::string(name(choice.protocol)).c_str(), choice.blocks);
      for (int i = 0; i < 4; ++i) {
        const auto& c = all[i];
        std::printf(" %s/%s/%d %.2f (%.0f)", c.choice.algorithm->name.c_str(),
                    std::string(name(c.choice.protocol)).c_str(), c.choice.blocks,
                    c.prediction.seconds * 1e6, bytes / c.prediction.seconds * 1.75e-9);
      }
      std::printf("  choose %.1f ms\n", std::chrono::duration<double>(t2 - t1).count() * 1e3);
    }
    std::printf("%.2f s\n",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
  }
}

}  // namespace
}  // namespace tutti
