#include "collectives/cost/walk.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "collectives/program/step_graph.h"

namespace tutti {

namespace {

template <typename Value>
using Earliest = std::priority_queue<std::pair<double, Value>,
                                     std::vector<std::pair<double, Value>>, std::greater<>>;

// The walk. A core runs its rank as long as that rank has ready steps, and then switches to the
// rank that has been ready longest.
class Walk {
 public:
  Walk(std::span<const Plan> plans, const Timing& timing)
      : timing_(timing), graph_(make_step_graph(plans)), ends_(timing.steps.size(), 0) {
    const auto ranks = static_cast<int32_t>(plans.size());
    ranks_.resize(ranks);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t first = graph_.first_step[rank];
      rank_of_.insert(rank_of_.end(), graph_.first_step[rank + 1] - first, rank);
      const int32_t core = timing.core_of(rank);
      ranks_[rank].core = core;
      if (core >= static_cast<int32_t>(cores_.size())) cores_.resize(core + 1);
      ++cores_[core].ranks;
    }
    for (size_t slice = 0; slice < timing.steps.size(); ++slice) {
      waits_.insert(waits_.end(), graph_.waits.begin(), graph_.waits.end());
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
      if (core.next < 0 || core.next_start != start) continue;  // stale entry
      if (start > give_up) return {};
      Rank& rank = ranks_[core.next];
      const int32_t instance = rank.ready.top().second;
      rank.ready.pop();
      if (!rank.ready.empty()) core.ready.emplace(rank.ready.top().first, core.next);
      core.last = std::exchange(core.next, -1);
      const int32_t slice = instance / graph_.steps();
      core.free = start + timing_.steps[slice][instance % graph_.steps()];
      ends_[slice] = std::max(ends_[slice], core.free);
      finish(instance, core.free);
      plan_next(number);
    }
    return std::ranges::max(ends_) > give_up ? std::vector<double>() : ends_;
  }

 private:
  // State of a rank. An instance is one step in one slice; its index is slice * steps + step.
  struct Rank {
    int32_t core = 0;
    Earliest<int32_t> ready;  // ready instances
  };
  struct Core {
    int32_t ranks = 0;
    double free = 0;
    int32_t last = -1;        // rank that the core ran last
    Earliest<int32_t> ready;  // ranks by their first ready instance; may contain stale entries
    int32_t next = -1;        // rank that the core runs next, at next_start
    double next_start = 0;
  };

  void finish(int32_t instance, double end) {
    const int32_t step = instance % graph_.steps();
    const int32_t first = instance - step;
    for (const int32_t follower : graph_.followers_of(step)) pass(first + follower, end);
    for (const StepGraph::Message& message : graph_.messages_of(step)) {
      pass(first + message.step, arrival(message, instance, end));
    }
    if (timing_.slices_in_turn) finish_in_slice(instance, end);
  }

  // Records that one of the events for which the instance waits occurs at time `at`.
  void pass(int32_t instance, double at) {
    ready_at_[instance] = std::max(ready_at_[instance], at);
    if (--waits_[instance] == 0) make_ready(instance);
  }

  // Makes all steps of a slice also wait until their rank has finished the previous slice.
  void take_slices_in_turn() {
    for (size_t i = static_cast<size_t>(graph_.steps()); i < waits_.size(); ++i) ++waits_[i];
    for (size_t slice = 0; slice < timing_.steps.size(); ++slice) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        left_.push_back(graph_.first_step[rank + 1] - graph_.first_step[rank]);
      }
    }
  }

  void finish_in_slice(int32_t instance, double end) {
    const int32_t slice = instance / graph_.steps();
    const int32_t rank = rank_of_[instance % graph_.steps()];
    if (--left_[static_cast<size_t>(slice) * ranks_.size() + rank] > 0) return;
    if (slice + 1 == static_cast<int32_t>(timing_.steps.size())) return;
    for (int32_t step = graph_.first_step[rank]; step < graph_.first_step[rank + 1]; ++step) {
      pass((slice + 1) * graph_.steps() + step, end);
    }
  }

  // Returns the arrival time of a message. Messages that leave a host by the same wire are sent one
  // after another, and so are messages that enter a host by the same wire.
  double arrival(const StepGraph::Message& message, int32_t sender, double sent) {
    if (timing_.hosts->near(message.from, message.to)) return sent + timing_.near_latency;
    const double wire = timing_.wires[sender / graph_.steps()][sender % graph_.steps()];
    const int32_t from = timing_.hosts->host_of(message.from);
    const int32_t to = timing_.hosts->host_of(message.to);
    double& sends_until = sends_until_[timing_.wire_of(from, to)];
    double& receives_until = receives_until_[timing_.wire_of(to, from)];
    const double leaves = std::max(sent, sends_until);
    sends_until = leaves + wire;
    receives_until = std::max(leaves + timing_.far_latency, receives_until) + wire;
    return receives_until;
  }

  void make_ready(int32_t instance) {
    const int32_t number = rank_of_[instance % graph_.steps()];
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
      // Ranks that share a core poll for messages in turn while they wait.
      start =
          std::max(core.free, core.ready.top().first) + (core.ranks > 1 ? timing_.switch_time : 0);
    }
    if (core.next >= 0 && core.next == next && core.next_start == start) return;
    core.next = next;
    core.next_start = start;
    turns_.emplace(start, number);
  }

  const Timing& timing_;
  const StepGraph graph_;
  std::vector<int32_t> rank_of_;  // by step: its rank
  std::vector<Rank> ranks_;
  std::vector<Core> cores_;
  Earliest<int32_t> turns_;             // cores by their next start; may contain stale entries
  std::vector<int32_t> waits_;          // by instance: number of events that it waits for
  std::vector<double> ready_at_;        // by instance: when it is ready
  std::vector<int32_t> left_;           // by slice and rank: unfinished steps
  std::vector<double> ends_;            // by slice: when it ends
  std::vector<double> sends_until_;     // by wire: when its last outgoing message has left
  std::vector<double> receives_until_;  // by wire: when its last incoming message has arrived
};

}  // namespace

std::vector<double> walk(std::span<const Plan> plans, const Timing& timing, double give_up) {
  return Walk(plans, timing).run(give_up);
}

}  // namespace tutti
