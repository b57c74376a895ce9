#include "collectives/cost/gpu_planner.h"

#include <algorithm>

namespace tutti {

namespace {

// Minimum and maximum number of blocks that are walked. They represent all of a kernel's blocks,
// which are similar. Several blocks are needed so that some use the link while others wait.
constexpr int32_t kFewestWalked = 2;
constexpr int32_t kMostWalked = 8;
// Maximum number of steps of a program over all ranks, and of a walk over all blocks of all ranks.
constexpr size_t kLongestProgram = 25'000;
constexpr size_t kLongestWalk = 2 * kLongestProgram;
// The number of blocks is doubled as long as doubling reduces the time to at most this fraction.
constexpr double kGpuWorthIt = 0.97;

// Returns one copy of each rank's plan per block, because the walk treats blocks as ranks, and a
// GPU as their host.
std::vector<Plan> for_blocks(const std::vector<Plan>& plans, int32_t blocks) {
  std::vector<Plan> all;
  all.reserve(plans.size() * static_cast<size_t>(blocks));
  for (const Plan& plan : plans) {
    for (int32_t block = 0; block < blocks; ++block) {
      const auto numbered = [&](int32_t rank) { return rank * blocks + block; };
      Plan& own = all.emplace_back(plan);
      own.shape.rank = numbered(plan.shape.rank);
      for (Step& step : own.program.steps) {
        for (int32_t& peer : step.peers) peer = numbered(peer);
      }
      for (Plan::Queue& queue : own.queues) {
        if (queue.kind != Plan::QueueKind::local) queue.peer = numbered(queue.peer);
      }
    }
  }
  return all;
}

size_t steps_of(const std::vector<Plan>& plans) {
  return std::max<size_t>(1, plans[0].program.steps.size() * plans.size());
}

// Returns a block's share of the bytes, rounded to whole elements.
uint64_t share_of(uint64_t bytes, DType dtype, int32_t blocks) {
  const uint64_t all = bytes / size_of(dtype);
  const auto parts = static_cast<uint64_t>(blocks);
  return (all + parts - 1) / parts * size_of(dtype);
}

}  // namespace

std::string_view name(GpuProtocol protocol) {
  return protocol == GpuProtocol::simple ? "simple" : "lines";
}

std::string_view name(GpuWay way) {
  constexpr std::string_view kNames[] = {"slots", "lent", "joined", "switch"};
  return kNames[static_cast<size_t>(way)];
}

const GpuChoice& GpuPlanner::choose(const CallToPlan& wanted, Reach reach) {
  CallToPlan typical = wanted;
  typical.bytes = typical_size(wanted.bytes);
  GpuChoice& chosen = chosen_[{typical.collective, typical.root, typical.bytes, typical.dtype,
                               typical.at_least, typical.direct, reach}];
  if (chosen.algorithm != nullptr) return chosen;
  const std::vector<GpuCandidate> candidates = explain(typical, reach);
  if (candidates.empty() || !candidates[0].excluded.empty()) throw no_algorithm(shape_, wanted);
  return chosen = candidates[0].choice;
}

std::vector<GpuCandidate> GpuPlanner::explain(const CallToPlan& wanted, Reach reach) {
  std::vector<GpuCandidate> candidates;
  for (const Algorithm* algorithm : algorithms_to_choose_from(wanted.collective, more_)) {
    for (const GpuProtocol protocol : kGpuProtocols) {
      candidates.push_back(price(*algorithm, protocol, wanted, reach));
    }
  }
  std::ranges::stable_sort(candidates, [](const GpuCandidate& a, const GpuCandidate& b) {
    if (a.excluded.empty() != b.excluded.empty()) return a.excluded.empty();
    return a.prediction.seconds < b.prediction.seconds;
  });
  return candidates;
}

GpuCandidate GpuPlanner::price(const Algorithm& algorithm, GpuProtocol protocol,
                               const CallToPlan& wanted, Reach reach) {
  GpuCandidate candidate{.choice = {&algorithm, protocol, 1},
                         .excluded = why_not(algorithm, shape_, wanted),
                         .prediction = {}};
  if (!candidate.excluded.empty()) return candidate;
  const std::vector<Plan>& plans = plans_of(algorithm, wanted.root);
  if (steps_of(plans) > kLongestProgram) {
    candidate.excluded = "it has too many steps to simulate";
    return candidate;
  }
  const bool lends = protocol == GpuProtocol::simple && reach != Reach::slots;
  if (lends && price_windows(candidate, plans, wanted, reach)) return candidate;
  return price_slots(std::move(candidate), plans, wanted);
}

Prediction GpuPlanner::predict_named(const Algorithm& algorithm, GpuProtocol protocol,
                                     const CallToPlan& wanted) {
  const std::vector<Plan>& plans = plans_of(algorithm, wanted.root);
  return predict_on(plans, protocol, useful_blocks(plans[0], protocol, wanted), wanted);
}

// Predicts the call as the kernel runs it: all messages that can be lent are lent.
bool GpuPlanner::price_windows(GpuCandidate& candidate, const std::vector<Plan>& plans,
                               const CallToPlan& wanted, Reach reach) const {
  if (shape_.ranks < 2) return false;
  const int32_t most = useful_blocks(plans[0], GpuProtocol::simple, wanted);
  for (int32_t blocks = 1;; blocks = std::min(2 * blocks, most)) {
    const auto priced = predict_in_windows(plans, wanted, costs_, blocks, reach);
    if (!priced) return false;
    const Prediction& more = priced->prediction;
    if (blocks > 1 && more.seconds > kGpuWorthIt * candidate.prediction.seconds) break;
    candidate.prediction = more;
    candidate.choice.blocks = blocks;
    candidate.choice.way = !priced->joined     ? GpuWay::lent
                           : priced->by_switch ? GpuWay::by_switch
                                               : GpuWay::joined;
    if (blocks >= most) break;
  }
  return true;
}

GpuCandidate GpuPlanner::price_slots(GpuCandidate candidate, const std::vector<Plan>& plans,
                                     const CallToPlan& wanted) const {
  const GpuProtocol protocol = candidate.choice.protocol;
  const int32_t most = useful_blocks(plans[0], protocol, wanted);
  candidate.prediction = predict_on(plans, protocol, 1, wanted);
  for (int32_t blocks = std::min(2, most); blocks > candidate.choice.blocks;
       blocks = std::min(2 * blocks, most)) {
    const Prediction more = predict_on(plans, protocol, blocks, wanted);
    if (more.seconds > kGpuWorthIt * candidate.prediction.seconds) break;
    candidate.prediction = more;
    candidate.choice.blocks = blocks;
  }
  return candidate;
}

Prediction GpuPlanner::predict_on(const std::vector<Plan>& plans, GpuProtocol protocol,
                                  int32_t blocks, const CallToPlan& wanted) const {
  const auto affordable = static_cast<int32_t>(kLongestWalk / steps_of(plans));
  const int32_t walked = std::min(blocks, std::clamp(affordable, kFewestWalked, kMostWalked));
  return predict(for_blocks(plans, walked), share_of(wanted.bytes, wanted.dtype, blocks),
                 wanted.dtype, machine_of(protocol, blocks, walked));
}

int32_t GpuPlanner::useful_blocks(const Plan& plan, GpuProtocol protocol,
                                  const CallToPlan& wanted) const {
  Machine machine = machine_of(protocol, 1, 1);
  machine.limits.lanes = costs_.blocks;
  machine.limits.slots = costs_.blocks * std::max(1, plan.program.fan_out);
  const uint32_t slices = slices_of(plan, wanted.bytes, wanted.dtype, machine);
  return static_cast<int32_t>(std::clamp<uint32_t>(slices, 1, costs_.blocks));
}

Machine GpuPlanner::machine_of(GpuProtocol protocol, int32_t blocks, int32_t walked) const {
  const bool simple = protocol == GpuProtocol::simple;
  Machine machine;
  LinkCosts& link = machine.model.tcp;
  link = simple ? costs_.simple : costs_.lines;
  link.wire *= static_cast<double>(blocks) / walked;
  // All blocks together cannot exceed the memory bandwidth. A reduction reads two operands.
  const double access = blocks * costs_.memory;
  for (ByteCosts& bytes : link.bytes) {
    for (double* const moves : {&bytes.send, &bytes.recv, &bytes.copy}) {
      *moves = std::max(*moves, 2 * access);
    }
    for (double* const reduces : {&bytes.recv_reduce, &bytes.reduce}) {
      *reduces = std::max(*reduces, 3 * access);
    }
  }
  machine.model.cores = walked;
  const size_t message = simple ? slots_.simple_bytes : slots_.lines_bytes;
  machine.limits = Limits::of_one_path(1, 1, {message, message});
  machine.limits.least_bytes = gpu::kLeastMessageBytes;
  machine.hosts = Hosts::equal(shape_.ranks * walked, walked);
  machine.near_shm = false;
  machine.in_kernel = true;
  machine.wire_for_each_pair = costs_.mesh;
  return machine;
}

const std::vector<Plan>& GpuPlanner::plans_of(const Algorithm& algorithm, int root) {
  std::vector<Plan>& plans = plans_[{algorithm.id, root}];
  if (plans.empty()) {
    Shape shape = shape_;
    shape.root = root;
    plans = make_plans(algorithm, shape);
  }
  return plans;
}

}  // namespace tutti
