#include "collectives/cost/window_costs.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "collectives/gpu/joint_steps.h"
#include "collectives/gpu/lending.h"
#include "collectives/gpu/lower.h"

namespace tutti {

namespace {

using gpu::DeviceStep;
using gpu::LoweredCall;
using gpu::Operand;
using gpu::Part;
using gpu::Where;

// Returns all ranks' calls as their kernels receive them; empty if nothing can be lent.
std::vector<LoweredCall> lowered_calls(const std::vector<Plan>& plans, const CallToPlan& wanted,
                                       int32_t blocks) {
  const auto ranks = static_cast<int>(plans.size());
  const uint64_t count = std::max<uint64_t>(wanted.bytes / size_of(wanted.dtype), 1);
  const auto whole = [&](bool has_blocks) { return has_blocks ? count * plans.size() : count; };
  const Request request{
      .collective = wanted.collective,
      .input = {nullptr, whole(has_input_blocks(wanted.collective)), wanted.dtype},
      .output = {nullptr, whole(has_output_blocks(wanted.collective)), wanted.dtype},
      .op = ReduceOp::sum,
      .count = count};
  if (!gpu::may_lend(request)) return {};
  const gpu::MailboxShape shape = gpu::mailbox_shape_of(ranks);
  constexpr auto kProtocol = gpu::Protocol::simple;
  std::vector<CompiledCall> compiled;
  for (int rank = 0; rank < ranks; ++rank) {
    const Plan& plan = plans[static_cast<size_t>(rank)];
    compiled.push_back(compiled_of(Request(request), rank, ranks, nullptr, &plan));
    derive(compiled.back(), gpu::limits_of(shape, kProtocol, static_cast<uint32_t>(blocks)));
  }
  auto actions = gpu::lend(plans, compiled, gpu::schedule(plans, shape.slots), shape.slots);
  if (!actions) return {};
  if (wanted.at_least != Grade::canonical) actions = gpu::join(plans, *actions, shape.slots);
  std::vector<LoweredCall> lowered;
  for (int rank = 0; rank < ranks; ++rank) {
    lowered.push_back(
        gpu::lower(compiled, rank, (*actions)[static_cast<size_t>(rank)], shape, kProtocol));
  }
  return lowered;
}

class WindowWalk {
 public:
  WindowWalk(std::span<const LoweredCall> calls, const CallToPlan& wanted, const GpuCosts& costs,
             int32_t blocks, Reach reach)
      : calls_(calls),
        width_(size_of(wanted.dtype)),
        costs_(costs),
        blocks_(blocks),
        reach_(reach),
        links_(calls.size() * (costs.mesh ? calls.size() : 1)) {}

  Prediction predict() {
    const double latencies = slice(0);
    const double first = slice(1);
    for (size_t rank = 0; rank < calls_.size(); ++rank) add_traffic(rank);
    double wire = 0;
    for (const Link& link : links_) wire = std::max({wire, link.in, link.out});
    const double slices = std::max(1.0, static_cast<double>(calls_[0].launch.slices) / blocks_);
    const double busy = *std::ranges::max_element(busy_);
    Prediction prediction{.messages = messages_, .moving = moving_ * slices, .wire = wire};
    prediction.seconds = costs_.simple.call + std::max(first, latencies + wire / slices) +
                         (slices - 1) * std::max(busy, wire / slices);
    return prediction;
  }

 private:
  // Returns the time from the start of a slice until all ranks have done its steps. `part`:
  // fraction of the slice's bytes whose time is counted; 0: only latencies and the fixed time per
  // step. Also sets busy_, messages_ and moving_.
  double slice(double part) {
    std::vector<double> now(calls_.size(), 0);
    std::vector<size_t> next(calls_.size(), 0);
    std::map<std::pair<size_t, size_t>, std::deque<double>> messages;
    busy_.assign(calls_.size(), 0);
    messages_ = moving_ = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < calls_.size(); ++rank) {
        while (next[rank] < calls_[rank].steps.size() &&
               take(rank, calls_[rank].steps[next[rank]], part, now[rank], messages)) {
          ++next[rank];
          moved = true;
        }
      }
    }
    return *std::ranges::max_element(now);
  }

  template <typename Messages>
  bool take(size_t rank, const DeviceStep& step, double part, double& now, Messages& messages) {
    const std::vector<size_t> from = peers(rank, step.receives, step.receives_from_all);
    const std::vector<size_t> to = peers(rank, step.sends, step.sends_to_all);
    double begin = now;
    for (const size_t peer : from) {
      if (messages[{peer, rank}].empty()) return false;
      begin = std::max(begin, messages[{peer, rank}].front());
    }
    for (const size_t peer : from) messages[{peer, rank}].pop_front();
    const LinkCosts& link = costs_.simple;
    double steps = from.empty() && to.empty() ? link.local : 0;
    steps += static_cast<double>(from.size()) * link.recv;
    if (!to.empty()) steps += link.send + static_cast<double>(to.size() - 1) * link.local;
    const double bytes = part * seconds_of_data(rank, step);
    now = begin + steps + bytes;
    busy_[rank] += steps + bytes;
    if (rank == 0) {
      messages_ += steps;
      moving_ += bytes;
    }
    for (const size_t peer : to) messages[{rank, peer}].push_back(now + link.latency);
    return true;
  }

  std::vector<size_t> peers(size_t rank, int32_t port, bool all) const {
    const std::vector<int32_t>& ports = calls_[rank].ports;
    if (all) return {ports.begin(), ports.end()};
    if (port < 0) return {};
    return {static_cast<size_t>(ports[static_cast<size_t>(port)])};
  }

  bool by_switch(const DeviceStep& step) const {
    return step.by_switch && reach_ == Reach::multicast;
  }

  // Returns how many loads and stores a block performs per element.
  double accesses(const DeviceStep& step, const Part& part) const {
    const auto ranks = static_cast<double>(calls_.size());
    const double all = by_switch(step) ? 1 : ranks;
    const auto of = [&](const Operand& operand) {
      if (operand.where == Where::nowhere) return 0.0;
      const bool is_all = operand.where == Where::all_inputs || operand.where == Where::all_outputs;
      return is_all ? all : 1.0;
    };
    const double message = step.sends >= 0 && step.lend < 0 ? 1 : 0;
    const bool only_lends = part.dst.where == Where::nowhere && message == 0;
    return only_lends ? 0 : of(part.a) + of(part.b) + of(part.dst) + message;
  }

  // Returns the time that a step's data takes in one block and slice. A pass is limited by the
  // block's share of the memory bandwidth.
  double seconds_of_data(size_t rank, const DeviceStep& step) const {
    const double pass = costs_.simple.at(0).recv;  // time per byte of a load and a store
    double seconds = 0;
    for (uint32_t i = 0; i < step.parts; ++i) {
      const Part& part = calls_[rank].parts[step.first_part + i];
      const auto bytes =
          static_cast<double>(width_ * std::min(part.length, calls_[rank].launch.slice_elements));
      seconds += bytes * accesses(step, part) * std::max(pass / 2, blocks_ * costs_.memory);
    }
    return seconds;
  }

  // Adds the traffic of all slices to the links' busy times, in seconds.
  void add_traffic(size_t rank) {
    for (const DeviceStep& step : calls_[rank].steps) {
      double bytes = 0;
      for (uint32_t i = 0; i < step.parts; ++i) {
        bytes += static_cast<double>(width_ * calls_[rank].parts[step.first_part + i].length);
      }
      const bool lent = step.parts > 0 && is_lent(calls_[rank].parts[step.first_part]);
      if (lent) add(peers(rank, step.receives, false)[0], rank, bytes * costs_.simple.wire);
      if (step.receives_from_all) add_joint(rank, step, bytes);
      if (step.sends >= 0 && step.lend < 0) {
        add(rank, peers(rank, step.sends, false)[0], bytes * costs_.simple.wire);
      }
    }
  }
  // Adds the traffic of a joint step. For a sum by the switch, every GPU including this one sends
  // its contribution once, and one sum arrives. For a multicast store, one copy leaves and every
  // GPU receives one.
  void add_joint(size_t rank, const DeviceStep& step, double bytes) {
    if (by_switch(step)) {
      const double seconds = bytes * costs_.multicast;
      for (size_t other = 0; other < calls_.size(); ++other) {
        links_[other].out += seconds;
        if (step.sends_to_all) links_[other].in += seconds;
      }
      links_[rank].in += seconds;
      if (step.sends_to_all) links_[rank].out += seconds;
      return;
    }
    for (const size_t other : peers(rank, -1, true)) {
      add(other, rank, bytes * costs_.simple.wire);
      if (step.sends_to_all) add(rank, other, bytes * costs_.simple.wire);
    }
  }
  static bool is_lent(const Part& part) {
    const auto is = [](const Operand& operand) {
      return operand.where == Where::lent_input || operand.where == Where::lent_output;
    };
    return is(part.a) || is(part.b);
  }
  void add(size_t from, size_t to, double seconds) {
    link(from, to).out += seconds;
    link(to, from).in += seconds;
  }

  // Busy time of a link per direction, in seconds.
  struct Link {
    double in = 0;
    double out = 0;
  };
  // Returns a GPU's single link, or its link to `other`.
  Link& link(size_t own, size_t other) {
    return links_[costs_.mesh ? own * calls_.size() + other : own];
  }

  std::span<const LoweredCall> calls_;
  const uint64_t width_;
  const GpuCosts& costs_;
  const int32_t blocks_;
  const Reach reach_;
  std::vector<Link> links_;
  std::vector<double> busy_;
  double messages_ = 0;  // rank 0's fixed time per slice for steps and messages, in seconds
  double moving_ = 0;
};

}  // namespace

std::optional<WindowPrediction> predict_in_windows(const std::vector<Plan>& plans,
                                                   const CallToPlan& wanted, const GpuCosts& costs,
                                                   int32_t blocks, Reach reach) {
  const std::vector<LoweredCall> calls = lowered_calls(plans, wanted, blocks);
  if (calls.empty()) return std::nullopt;
  const bool has_switch = reach == Reach::multicast && costs.multicast > 0;
  const auto any = [&](bool DeviceStep::*is) {
    return std::ranges::any_of(calls[0].steps, [is](const DeviceStep& step) { return step.*is; });
  };
  return WindowPrediction{
      .prediction =
          WindowWalk(calls, wanted, costs, blocks, has_switch ? reach : Reach::windows).predict(),
      .joined = any(&DeviceStep::receives_from_all),
      .by_switch = has_switch && any(&DeviceStep::by_switch)};
}

}  // namespace tutti
