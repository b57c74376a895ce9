#include "collectives/cost.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace tutti {

namespace {

// What a step of a rank costs its processor, for one slice of a call.
class StepCosts {
 public:
  StepCosts(Collective collective, const Program& program, int32_t ranks, uint64_t bytes,
            DType dtype, const Machine& machine)
      : ranks_(ranks), machine_(machine) {
    const uint64_t element = size_of(dtype);
    widens_ = reduces(collective) && accumulator_of(dtype) != dtype;
    widening_ = widens_ ? 4.0 / static_cast<double>(element) : 1;
    const auto per_block =
        static_cast<uint64_t>(std::max(1, chunks_per_block(collective, program, ranks)));
    const uint64_t elements = bytes / element;
    const uint64_t largest = (elements + per_block - 1) / per_block;
    const bool wide = widens_ && program.scratch_chunks > 0;
    slicing_ =
        slice_collective(collective, program, largest, wide ? 4 : element, false, machine.limits);
    const double chunk = static_cast<double>(bytes) / static_cast<double>(per_block);
    chunk_bytes_ = slicing_.slices > 0 ? chunk / slicing_.slices : 0;
    const bool blocks = has_input_blocks(collective) || has_output_blocks(collective);
    const uint64_t footprint = blocks ? bytes * static_cast<uint64_t>(ranks) : bytes;
    near_ = &(machine.near_shm ? machine.model.shm : machine.model.tcp);
    far_ = &machine.model.tcp;
    near_bytes_ = near_->at(footprint);
    far_bytes_ = far_->at(footprint);
  }

  const Slicing& slicing() const { return slicing_; }
  // Messages without data are not sent, except tokens.
  bool is_silent(const Step& step) const {
    return chunk_bytes_ == 0 && !(step.src.empty() && step.dst.empty());
  }
  double latency(int32_t from, int32_t to) const { return link(from, to).latency; }
  double call() const { return (machine_.group >= ranks_ ? near_ : far_)->call; }

  Prediction of(int32_t rank, const Step& step) const {
    Prediction cost;
    const double bytes = chunk_bytes_ * chunks(step.kind == StepKind::send ? step.src : step.dst);
    const double wire = bytes * (widens_ && step.wire == Wire::accumulator ? widening_ : 1);
    switch (step.kind) {
      case StepKind::send:
        add_send(rank, step, wire, cost);
        break;
      case StepKind::recv:
        cost.messages = link(rank, step.peers[0]).recv;
        cost.moving = per_byte(rank, step.peers[0]).recv * wire;
        break;
      case StepKind::recv_reduce:
        cost.messages = link(rank, step.peers[0]).recv;
        cost.moving = per_byte(rank, step.peers[0]).recv * wire;
        cost.reducing =
            std::max(0.0, per_byte(rank, step.peers[0]).recv_reduce * wire - cost.moving);
        break;
      case StepKind::reduce:
        cost.messages = near_->local;
        cost.reducing = near_bytes_.reduce * bytes * widening_;
        break;
      case StepKind::copy:
        cost.messages = near_->local;
        cost.moving = near_bytes_.copy * bytes;
        break;
    }
    cost.seconds = cost.messages + cost.moving + cost.reducing;
    return cost;
  }

 private:
  static double chunks(const RangeList& ranges) {
    int32_t count = 0;
    for (const ChunkRange& range : ranges) count += range.count;
    return count;
  }
  // Shared memory publishes a message once for all its readers; sockets take one each.
  void add_send(int32_t rank, const Step& step, double bytes, Prediction& cost) const {
    bool published = false;
    for (const int32_t peer : step.peers) {
      const bool shared = is_near(rank, peer) && machine_.near_shm;
      if (shared && std::exchange(published, true)) {
        cost.messages += near_->reader;
        continue;
      }
      cost.messages += link(rank, peer).send;
      cost.moving += per_byte(rank, peer).send * bytes;
    }
  }
  bool is_near(int32_t a, int32_t b) const { return a / machine_.group == b / machine_.group; }
  const LinkCosts& link(int32_t a, int32_t b) const { return *(is_near(a, b) ? near_ : far_); }
  const ByteCosts& per_byte(int32_t a, int32_t b) const {
    return is_near(a, b) ? near_bytes_ : far_bytes_;
  }

  int32_t ranks_;
  const Machine& machine_;
  bool widens_ = false;
  double widening_ = 1;  // accumulator bytes of an element byte
  Slicing slicing_;
  double chunk_bytes_ = 0;  // of one slice of a chunk
  const LinkCosts* near_ = nullptr;
  const LinkCosts* far_ = nullptr;
  ByteCosts near_bytes_;
  ByteCosts far_bytes_;
};

// What waits for what among one rank's steps, as counts and successors.
struct Order {
  std::vector<int32_t> waits;                   // by step: predecessors on this rank, and messages
  std::vector<std::vector<int32_t>> followers;  // by step, on this rank
};

Order order_of(const Plan& plan) {
  const auto count = static_cast<int32_t>(plan.program.steps.size());
  Order order{std::vector<int32_t>(count, 0), std::vector<std::vector<int32_t>>(count)};
  const auto follows = [&](int32_t first, int32_t second) {
    order.followers[first].push_back(second);
    ++order.waits[second];
  };
  for (int32_t step = 0; step < count; ++step) {
    for (const int32_t need : plan.needs_of(step)) follows(need, step);
    const StepKind kind = plan.program.steps[step].kind;
    if (kind == StepKind::recv || kind == StepKind::recv_reduce) ++order.waits[step];
  }
  for (const Plan::Queue& queue : plan.queues) {
    for (size_t i = 1; i < queue.steps.size(); ++i) follows(queue.steps[i - 1], queue.steps[i]);
  }
  return order;
}

// Ranks of a host take its cores in turn.
size_t core_of(size_t rank, size_t ranks, const Machine& machine) {
  const size_t local = std::min<size_t>(machine.group, ranks);
  const size_t cores = std::min<size_t>(local, machine.model.cores);
  return rank / local * cores + rank % local % cores;
}

// The steps of a few slices of all ranks, in virtual time. A core goes on with its rank while that
// has something to do, and then changes over to the one that has been ready for longest.
class Walk {
 public:
  Walk(std::span<const Plan> plans, const StepCosts& costs, const Machine& machine, int slices)
      : plans_(plans), costs_(costs), switch_time_(machine.model.switch_time), ends_(slices, 0) {
    const size_t local = std::min<size_t>(machine.group, plans.size());
    cores_.resize(plans.size() / local * std::min<size_t>(local, machine.model.cores));
    ranks_.resize(plans.size());
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      set_up(ranks_[rank], plans[rank], slices);
      ranks_[rank].core = core_of(rank, plans.size(), machine);
      cores_[ranks_[rank].core].ranks.push_back(static_cast<int32_t>(rank));
    }
  }

  // When each slice is done.
  std::vector<double> run() {
    for (Core& core : cores_) look_ahead(core);
    while (true) {
      Core& core = *std::ranges::min_element(cores_, {}, &Core::next_start);
      if (core.next_rank < 0) return ends_;
      Rank& rank = ranks_[core.next_rank];
      const int32_t instance = rank.ready.top().second;
      rank.ready.pop();
      core.last = core.next_rank;
      core.free = execute(core.next_rank, instance, core.next_start);
      look_ahead(core);
    }
  }

 private:
  using Ready = std::pair<double, int32_t>;  // since when, and what: slice * steps + step
  struct Rank {
    Order order;
    std::vector<int32_t> waits;    // by instance: for so many others
    std::vector<double> ready_at;  // by instance
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    std::map<int32_t, const std::vector<int32_t>*> receives;  // steps, by peer
    std::vector<std::map<int32_t, size_t>> taken;             // of those, by slice and peer
    size_t core = 0;
  };
  struct Core {
    std::vector<int32_t> ranks;
    double free = 0;
    int32_t last = -1;
    double next_start = 0;
    int32_t next_rank = -1;
  };

  static void set_up(Rank& rank, const Plan& plan, int slices) {
    rank.order = order_of(plan);
    for (int slice = 0; slice < slices; ++slice) {
      rank.waits.insert(rank.waits.end(), rank.order.waits.begin(), rank.order.waits.end());
    }
    rank.ready_at.assign(rank.waits.size(), 0);
    rank.taken.resize(slices);
    for (const Plan::Queue& queue : plan.queues) {
      if (queue.kind == Plan::QueueKind::recv) rank.receives[queue.peer] = &queue.steps;
    }
    for (size_t i = 0; i < rank.waits.size(); ++i) {
      if (rank.waits[i] == 0) rank.ready.emplace(0, static_cast<int32_t>(i));
    }
  }

  // What the core does next, and when.
  void look_ahead(Core& core) const {
    core.next_rank = -1;
    core.next_start = std::numeric_limits<double>::infinity();
    if (core.last >= 0 && !ranks_[core.last].ready.empty() &&
        ranks_[core.last].ready.top().first <= core.free) {
      core.next_rank = core.last;
      core.next_start = core.free;
      return;
    }
    for (const int32_t rank : core.ranks) {
      if (ranks_[rank].ready.empty()) continue;
      // While they wait, ranks that share a core look for messages in turn.
      const double start = std::max(core.free, ranks_[rank].ready.top().first) +
                           (core.ranks.size() > 1 ? switch_time_ : 0);
      if (start < core.next_start) {
        core.next_start = start;
        core.next_rank = rank;
      }
    }
  }

  void release(int32_t number, int32_t instance, double time) {
    Rank& rank = ranks_[number];
    rank.ready_at[instance] = std::max(rank.ready_at[instance], time);
    if (--rank.waits[instance] == 0) rank.ready.emplace(rank.ready_at[instance], instance);
  }

  double execute(int32_t number, int32_t instance, double start) {
    const auto steps = static_cast<int32_t>(plans_[number].program.steps.size());
    const int32_t slice = instance / steps;
    const Step& step = plans_[number].program.steps[instance % steps];
    const double end = start + (costs_.is_silent(step) ? 0 : costs_.of(number, step).seconds);
    ends_[slice] = std::max(ends_[slice], end);
    for (const int32_t next : ranks_[number].order.followers[instance % steps]) {
      release(number, slice * steps + next, end);
    }
    if (step.kind == StepKind::send) {
      for (const int32_t peer : step.peers) deliver(number, peer, slice, end);
    }
    return end;
  }

  void deliver(int32_t from, int32_t to, int32_t slice, double sent) {
    Rank& rank = ranks_[to];
    const int32_t step = (*rank.receives[from])[rank.taken[slice][from]++];
    const auto steps = static_cast<int32_t>(plans_[to].program.steps.size());
    release(to, slice * steps + step, sent + costs_.latency(from, to));
    look_ahead(cores_[rank.core]);
  }

  std::span<const Plan> plans_;
  const StepCosts& costs_;
  double switch_time_;
  std::vector<double> ends_;  // by slice
  std::vector<Rank> ranks_;
  std::vector<Core> cores_;
};

// One rank's own steps, of all slices.
Prediction busy_time(const Plan& plan, const StepCosts& costs) {
  Prediction busy;
  for (const Step& step : plan.program.steps) {
    if (costs.is_silent(step)) continue;
    const Prediction cost = costs.of(plan.shape.rank, step);
    const double slices = costs.slicing().slices;
    busy.messages += cost.messages * slices;
    busy.moving += cost.moving * slices;
    busy.reducing += cost.reducing * slices;
  }
  busy.messages += costs.call();
  busy.seconds = busy.messages + busy.moving + busy.reducing;
  return busy;
}

StepCosts costs_of(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine) {
  return {plan.collective, plan.program, plan.shape.ranks, bytes, dtype, machine};
}

}  // namespace

Prediction predict(std::span<const Plan> plans, uint64_t bytes, DType dtype,
                   const Machine& machine) {
  constexpr int kWalked = 4;  // slices; enough for the pipeline to run
  const StepCosts costs = costs_of(plans[0], bytes, dtype, machine);
  Prediction prediction;
  std::vector<double> work(plans.size(), 0);  // by core
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const Prediction busy = busy_time(plans[rank], costs);
    work[core_of(rank, plans.size(), machine)] += busy.seconds;
    if (busy.seconds > prediction.seconds) prediction = busy;
  }
  const int slices = static_cast<int>(std::max<uint32_t>(1, costs.slicing().slices));
  const std::vector<double> ends = Walk(plans, costs, machine, std::min(slices, kWalked)).run();
  double seconds = std::ranges::max(ends);
  // The first slices fill the pipeline; between the last two it runs.
  if (slices > kWalked) seconds += (ends[kWalked - 1] - ends[kWalked - 2]) * (slices - kWalked);
  // No core does its work in less than the time that it takes.
  prediction.seconds = std::max(std::ranges::max(work), seconds + costs.call());
  return prediction;
}

double lower_bound(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine) {
  return busy_time(plan, costs_of(plan, bytes, dtype, machine)).seconds;
}

}  // namespace tutti
