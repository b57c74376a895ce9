#include "collectives/cost/walk.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace tutti {

namespace {

using StepNumber = int32_t;  // among all ranks' steps: rank 0's first

// What waits for what, within one slice: the steps of all ranks and their messages.
class Order {
 public:
  struct Follower {
    StepNumber step;
    // Of a message from one host to another; else none.
    int32_t from_host = -1;
    int32_t to_host = -1;
    double delay = 0;
  };

  Order(std::span<const Plan> plans, const Timing& timing) {
    first_step_.push_back(0);
    for (const Plan& plan : plans) {
      const auto steps = static_cast<int32_t>(plan.program.steps.size());
      first_step_.push_back(first_step_.back() + steps);
      rank_of_.insert(rank_of_.end(), steps, plan.shape.rank);
    }
    for (const Plan& plan : plans) add_own(plan);
    add_messages(plans, timing);
    sort_by_first();
  }

  int32_t steps() const { return first_step_.back(); }
  int32_t rank_of(StepNumber step) const { return rank_of_[step]; }
  // Of a rank: its first step, and the one behind its last.
  std::pair<StepNumber, StepNumber> steps_of(int32_t rank) const {
    return {first_step_[rank], first_step_[rank + 1]};
  }
  // By step: how many others it follows.
  const std::vector<int32_t>& waits() const { return waits_; }
  std::span<const Follower> followers(StepNumber step) const {
    return {followers_.data() + first_follower_[step],
            followers_.data() + first_follower_[step + 1]};
  }

 private:
  struct Edge {
    StepNumber first;
    Follower follower;
  };

  void add_own(const Plan& plan) {
    const StepNumber offset = first_step_[plan.shape.rank];
    const auto count = static_cast<int32_t>(plan.program.steps.size());
    for (int32_t step = 0; step < count; ++step) {
      for (const int32_t need : plan.needs_of(step)) {
        edges_.push_back({offset + need, {.step = offset + step}});
      }
    }
    for (const Plan::Queue& queue : plan.queues) {
      for (size_t i = 1; i < queue.steps.size(); ++i) {
        edges_.push_back({offset + queue.steps[i - 1], {.step = offset + queue.steps[i]}});
      }
    }
  }

  // The k-th message that one rank sends to another is the k-th that the other receives from it.
  void add_messages(std::span<const Plan> plans, const Timing& timing) {
    using Connection = std::tuple<int32_t, int32_t, const std::vector<int32_t>*>;  // from, to
    std::vector<Connection> sends;
    std::vector<Connection> receives;
    for (const Plan& plan : plans) {
      for (const Plan::Queue& queue : plan.queues) {
        const int32_t rank = plan.shape.rank;
        if (queue.kind == Plan::QueueKind::send) sends.emplace_back(rank, queue.peer, &queue.steps);
        if (queue.kind == Plan::QueueKind::recv) {
          receives.emplace_back(queue.peer, rank, &queue.steps);
        }
      }
    }
    std::ranges::sort(sends);
    std::ranges::sort(receives);
    for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      const auto& [from, to, sent] = sends[i];
      const std::vector<int32_t>& received = *std::get<2>(receives[i]);
      Order::Follower message{.delay = timing.near_latency};
      if (!timing.hosts->near(from, to)) {
        message = {.from_host = timing.hosts->host_of(from),
                   .to_host = timing.hosts->host_of(to),
                   .delay = timing.far_latency};
      }
      for (size_t k = 0; k < std::min(sent->size(), received.size()); ++k) {
        message.step = first_step_[to] + received[k];
        edges_.push_back({first_step_[from] + (*sent)[k], message});
      }
    }
  }

  void sort_by_first() {
    first_follower_.assign(steps() + 1, 0);
    waits_.assign(steps(), 0);
    for (const Edge& edge : edges_) {
      ++first_follower_[edge.first + 1];
      ++waits_[edge.follower.step];
    }
    for (int32_t step = 0; step < steps(); ++step)
      first_follower_[step + 1] += first_follower_[step];
    followers_.resize(edges_.size());
    std::vector<int32_t> next(first_follower_.begin(), first_follower_.end() - 1);
    for (const Edge& edge : edges_) followers_[next[edge.first]++] = edge.follower;
    edges_.clear();
  }

  std::vector<StepNumber> first_step_;  // by rank
  std::vector<int32_t> rank_of_;        // by step
  std::vector<Edge> edges_;             // until they are sorted
  std::vector<int32_t> waits_;
  std::vector<int32_t> first_follower_;
  std::vector<Follower> followers_;
};

template <typename Value>
using Earliest = std::priority_queue<std::pair<double, Value>,
                                     std::vector<std::pair<double, Value>>, std::greater<>>;

// A core goes on with its rank while that has something to do, and then changes over to the one
// that has been ready for longest.
class Walk {
 public:
  Walk(std::span<const Plan> plans, const Timing& timing)
      : timing_(timing), order_(plans, timing), ends_(timing.steps.size(), 0) {
    const auto ranks = static_cast<int32_t>(plans.size());
    ranks_.resize(ranks);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t core = timing.core_of(rank);
      ranks_[rank].core = core;
      if (core >= static_cast<int32_t>(cores_.size())) cores_.resize(core + 1);
      ++cores_[core].ranks;
    }
    for (size_t slice = 0; slice < timing.steps.size(); ++slice) {
      waits_.insert(waits_.end(), order_.waits().begin(), order_.waits().end());
    }
    ready_at_.assign(waits_.size(), 0);
    if (timing.slices_in_turn) take_slices_in_turn();
    sends_until_.assign(timing.all_wires(), 0);
    receives_until_ = sends_until_;
  }

  std::vector<double> run(double give_up) {
    for (int32_t i = 0; i < static_cast<int32_t>(waits_.size()); ++i) {
      if (waits_[i] == 0) make_ready(i);
    }
    while (!turns_.empty()) {
      const auto [start, number] = turns_.top();
      turns_.pop();
      Core& core = cores_[number];
      if (core.next < 0 || core.next_start != start) continue;  // planned anew since
      if (start > give_up) return {};
      Rank& rank = ranks_[core.next];
      const int32_t instance = rank.ready.top().second;
      rank.ready.pop();
      if (!rank.ready.empty()) core.ready.emplace(rank.ready.top().first, core.next);
      core.last = std::exchange(core.next, -1);
      const int32_t slice = instance / order_.steps();
      core.free = start + timing_.steps[slice][instance % order_.steps()];
      ends_[slice] = std::max(ends_[slice], core.free);
      finish(instance, core.free);
      plan_next(number);
    }
    return std::ranges::max(ends_) > give_up ? std::vector<double>() : ends_;
  }

 private:
  // An instance is a step of a slice: slice * steps + step.
  struct Rank {
    int32_t core = 0;
    Earliest<int32_t> ready;  // instances
  };
  struct Core {
    int32_t ranks = 0;
    double free = 0;
    int32_t last = -1;        // the rank that it worked for
    Earliest<int32_t> ready;  // ranks, by their first ready instance; outdated ones among them
    int32_t next = -1;        // the rank that it works for next, and when
    double next_start = 0;
  };

  void finish(int32_t instance, double end) {
    const int32_t step = instance % order_.steps();
    for (const Order::Follower& follower : order_.followers(step)) {
      const int32_t next = instance - step + follower.step;
      ready_at_[next] = std::max(ready_at_[next], arrival(follower, instance, end));
      if (--waits_[next] == 0) make_ready(next);
    }
    if (timing_.slices_in_turn) finish_in_slice(instance, end);
  }

  // All steps of a slice wait for the one before, too.
  void take_slices_in_turn() {
    for (size_t i = static_cast<size_t>(order_.steps()); i < waits_.size(); ++i) ++waits_[i];
    for (size_t slice = 0; slice < timing_.steps.size(); ++slice) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const auto [first, last] = order_.steps_of(static_cast<int32_t>(rank));
        left_.push_back(last - first);
      }
    }
  }

  void finish_in_slice(int32_t instance, double end) {
    const int32_t slice = instance / order_.steps();
    const int32_t rank = order_.rank_of(instance % order_.steps());
    if (--left_[static_cast<size_t>(slice) * ranks_.size() + rank] > 0) return;
    if (slice + 1 == static_cast<int32_t>(timing_.steps.size())) return;
    const auto [first, last] = order_.steps_of(rank);
    for (int32_t step = first; step < last; ++step) {
      const int32_t next = (slice + 1) * order_.steps() + step;
      ready_at_[next] = std::max(ready_at_[next], end);
      if (--waits_[next] == 0) make_ready(next);
    }
  }

  // Messages that leave a host by a wire go one after the other, and those that enter one.
  double arrival(const Order::Follower& follower, int32_t sender, double sent) {
    if (follower.from_host < 0) return sent + follower.delay;
    const double wire = timing_.wires[sender / order_.steps()][sender % order_.steps()];
    const auto& [from, to] = std::pair(follower.from_host, follower.to_host);
    double& sends_until = sends_until_[timing_.wire_of(from, to)];
    double& receives_until = receives_until_[timing_.wire_of(to, from)];
    const double leaves = std::max(sent, sends_until);
    sends_until = leaves + wire;
    receives_until = std::max(leaves + follower.delay, receives_until) + wire;
    return receives_until;
  }

  void make_ready(int32_t instance) {
    const int32_t number = order_.rank_of(instance % order_.steps());
    Rank& rank = ranks_[number];
    rank.ready.emplace(ready_at_[instance], instance);
    if (rank.ready.top().second != instance) return;
    cores_[rank.core].ready.emplace(ready_at_[instance], number);
    plan_next(rank.core);
  }

  void plan_next(int32_t number) {
    Core& core = cores_[number];
    const auto first_of = [&](int32_t rank) { return ranks_[rank].ready.top().first; };
    const auto is_ready = [&](int32_t rank) { return !ranks_[rank].ready.empty(); };
    int32_t next = -1;
    double start = 0;
    if (core.last >= 0 && is_ready(core.last) && first_of(core.last) <= core.free) {
      next = core.last;
      start = core.free;
    } else {
      while (!core.ready.empty() && (!is_ready(core.ready.top().second) ||
                                     first_of(core.ready.top().second) != core.ready.top().first)) {
        core.ready.pop();
      }
      if (core.ready.empty()) return;
      next = core.ready.top().second;
      // While they wait, ranks that share a core look for messages in turn.
      start =
          std::max(core.free, core.ready.top().first) + (core.ranks > 1 ? timing_.switch_time : 0);
    }
    if (core.next >= 0 && core.next == next && core.next_start == start) return;
    core.next = next;
    core.next_start = start;
    turns_.emplace(start, number);
  }

  const Timing& timing_;
  Order order_;
  std::vector<Rank> ranks_;
  std::vector<Core> cores_;
  Earliest<int32_t> turns_;             // cores, by when they go on; outdated ones among them
  std::vector<int32_t> waits_;          // by instance: for so many others
  std::vector<double> ready_at_;        // by instance
  std::vector<int32_t> left_;           // by slice and rank: steps to do
  std::vector<double> ends_;            // by slice
  std::vector<double> sends_until_;     // by host
  std::vector<double> receives_until_;  // by host
};

}  // namespace

std::vector<double> walk(std::span<const Plan> plans, const Timing& timing, double give_up) {
  return Walk(plans, timing).run(give_up);
}

}  // namespace tutti
