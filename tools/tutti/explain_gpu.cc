// tutti explain --gpu: predicts how a call runs inside a kernel from the costs of a GPU class.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/gpu_planner.h"
#include "collectives/program/bus_factor.h"
#include "tools/tutti/explain.h"
#include "tools/tutti/on_machine.h"

namespace tutti::tool {

namespace {

// Returns the name of the protocol or, for a kernel that needs no slots, of its way of sending.
std::string way_of(const GpuChoice& choice) {
  return std::string(choice.way == GpuWay::slots ? name(choice.protocol) : name(choice.way));
}

// Returns the cost that takes the largest part of the time.
std::string bound_of(const GpuCandidate& candidate, const GpuCosts& costs) {
  const Prediction& p = candidate.prediction;
  const LinkCosts& link =
      candidate.choice.protocol == GpuProtocol::simple ? costs.simple : costs.lines;
  const double passes = p.moving + p.reducing;
  const double latency = std::max(0.0, p.seconds - link.call - std::max(passes, p.wire));
  const std::pair<double, const char*> parts[] = {
      {p.wire, "the link of a GPU"},
      {passes, "a block's memory accesses"},
      {link.call, "the launch"},
      {latency, "steps and message latency"},
  };
  const auto& [busy, what] = *std::ranges::max_element(parts);
  return cat(what, ", ", std::lround(100 * busy / p.seconds), "%");
}

class Explanation {
 public:
  explicit Explanation(const GpuQuestion& question)
      : q_(question),
        model_(cost_model_in(q_.costs)),
        costs_(gpu_costs(model_, q_.gpu)),
        planner_({.ranks = q_.ranks}, costs_, q_.more) {}

  void print_head() const {
    std::printf(
        "%s, %d ranks with one GPU each of class %s: predicted kernel times\n"
        "costs: %s\n"
        "\n",
        std::string(name(q_.wanted.collective)).c_str(), q_.ranks, q_.gpu.c_str(),
        model_.gpus.contains(q_.gpu) ? source_of(q_.costs).c_str() : "published figures");
  }

  void print_candidates(uint64_t bytes) {
    std::printf("   %-24s %-10s %-8s %6s %12s %10s   %s\n", text(bytes).c_str(), "", "protocol",
                "blocks", "us", "GB/s", "of the busiest block, us");
    const GpuChoice chosen = planner_.choose(wanted(bytes), q_.reach);
    std::string bound;
    for (const GpuCandidate& candidate : planner_.explain(wanted(bytes), q_.reach)) {
      if (!candidate.excluded.empty()) {
        print_excluded(candidate);
        continue;
      }
      const bool is_chosen = candidate.choice.algorithm == chosen.algorithm &&
                             candidate.choice.protocol == chosen.protocol;
      print(candidate, bytes, is_chosen);
      if (is_chosen) bound = bound_of(candidate, costs_);
    }
    std::printf("\nGB/s are those of busbw.\nWhat bounds %s: %s of the time.\n",
                chosen.algorithm->name.c_str(), bound.c_str());
  }

  void print_ladder() {
    std::printf("%14s  %-24s %-8s %6s %12s %10s   %s\n", "bytes", "algorithm", "protocol", "blocks",
                "us", "GB/s", "most of the time");
    for (const uint64_t bytes : q_.sizes) {
      const GpuCandidate best = planner_.explain(wanted(bytes), q_.reach)[0];
      if (!best.excluded.empty()) throw no_algorithm({.ranks = q_.ranks}, q_.wanted);
      std::printf("%14s  %-24s %-8s %6d %12.2f %10.2f   %s\n", text(bytes).c_str(),
                  best.choice.algorithm->name.c_str(), way_of(best.choice).c_str(),
                  best.choice.blocks, best.prediction.seconds * 1e6, busbw(best, bytes),
                  bound_of(best, costs_).c_str());
    }
    std::printf("\nGB/s are those of busbw.\n");
  }

 private:
  static std::string text(uint64_t bytes) { return std::to_string(bytes); }

  CallToPlan wanted(uint64_t bytes) const {
    CallToPlan wanted = q_.wanted;
    wanted.bytes = block_bytes(wanted.collective, q_.ranks, bytes);
    return wanted;
  }

  double busbw(const GpuCandidate& candidate, uint64_t bytes) const {
    return static_cast<double>(bytes) / candidate.prediction.seconds * 1e-9 *
           bus_factor(q_.wanted.collective, q_.ranks);
  }

  // Prints the reason once, not for each protocol.
  static void print_excluded(const GpuCandidate& candidate) {
    if (candidate.choice.protocol != GpuProtocol::simple) return;
    const Algorithm& algorithm = *candidate.choice.algorithm;
    std::printf("    %-24s %-10s out: %s\n", algorithm.name.c_str(),
                std::string(name(algorithm.grade)).c_str(), candidate.excluded.c_str());
  }

  void print(const GpuCandidate& candidate, uint64_t bytes, bool chosen) const {
    const Prediction& p = candidate.prediction;
    const Algorithm& algorithm = *candidate.choice.algorithm;
    const double busy = p.messages + p.moving + p.reducing;
    std::printf(
        "%s %-24s %-10s %-8s %6d %12.2f %10.2f   launch and steps %.2f, bytes %.2f, waiting %.2f\n",
        chosen ? "  >" : "   ", algorithm.name.c_str(), std::string(name(algorithm.grade)).c_str(),
        way_of(candidate.choice).c_str(), candidate.choice.blocks, p.seconds * 1e6,
        busbw(candidate, bytes), p.messages * 1e6, (p.moving + p.reducing) * 1e6,
        std::max(0.0, p.seconds - busy) * 1e6);
  }

  const GpuQuestion& q_;
  CostModel model_;
  GpuCosts costs_;
  GpuPlanner planner_;
};

}  // namespace

int explain_gpu(const GpuQuestion& question) {
  Explanation explanation(question);
  explanation.print_head();
  if (question.sizes.size() == 1) {
    explanation.print_candidates(question.sizes[0]);
  } else {
    explanation.print_ladder();
  }
  return 0;
}

}  // namespace tutti::tool
