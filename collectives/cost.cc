#include "collectives/cost.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

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
  double call() const {
    return (machine_.group >= ranks_ ? near_ : far_)->call;
  }

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
  bool is_near(int32_t a, int32_t b) const {
    return a / machine_.group == b / machine_.group;
  }
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

// The steps of a few slices of all ranks, in virtual time.
class Walk {
 public:
  Walk(std::span<const Plan> plans, const StepCosts& costs, const Machine& machine, int slices)
      : plans_(plans),
        costs_(costs),
        machine_(machine),
        free_(plans.size(), 0),
        states_(plans.size()) {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      State& state = states_[rank];
      state.order = order_of(plans[rank]);
      for (int s = 0; s < slices; ++s) {
        state.waits.insert(state.waits.end(), state.order.waits.begin(), state.order.waits.end());
      }
      state.ready_at.assign(state.waits.size(), 0);
      for (const Plan::Queue& queue : plans[rank].queues) {
        if (queue.kind == Plan::QueueKind::recv) state.receives[queue.peer] = &queue.steps;
      }
      state.taken.resize(slices);
    }
    ranks_per_host_ = std::min<size_t>(machine.group, plans.size());
    cores_per_host_ = std::min<size_t>(ranks_per_host_, machine.model.cores);
    cores_.assign(plans.size() / ranks_per_host_ * cores_per_host_, {});
  }

  double run() {
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      for (size_t i = 0; i < states_[rank].waits.size(); ++i) {
        if (states_[rank].waits[i] == 0) push(static_cast<int32_t>(rank), static_cast<int32_t>(i));
      }
    }
    double end = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      const double start = earliest(event.rank, event.instance);
      if (start > event.time) {  // somebody was faster to the processor
        events_.push({start, event.rank, event.instance});
        continue;
      }
      end = std::max(end, execute(event.rank, event.instance, start));
    }
    return end;
  }

 private:
  struct Event {
    double time;
    int32_t rank;
    int32_t instance;                           // slice * steps + step
    bool operator<(const Event& other) const {  // the earliest first; slices and steps in order
      if (time != other.time) return time > other.time;
      if (instance != other.instance) return instance > other.instance;
      return rank > other.rank;
    }
  };
  struct State {
    Order order;
    std::vector<int32_t> waits;                                         // by instance
    std::vector<double> ready_at;                                       // by instance
    std::unordered_map<int32_t, const std::vector<int32_t>*> receives;  // by peer
    std::vector<std::unordered_map<int32_t, size_t>> taken;             // by slice and peer
  };
  struct Core {
    double free = 0;
    int32_t last = -1;  // rank
  };

  Core& core_of(int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    return cores_[r / ranks_per_host_ * cores_per_host_ + r % ranks_per_host_ % cores_per_host_];
  }

  double earliest(int32_t rank, int32_t instance) {
    const Core& core = core_of(rank);
    double start = std::max(states_[rank].ready_at[instance], free_[rank]);
    if (core.last >= 0 && core.last != rank) {
      start = std::max(start, core.free + machine_.model.switch_time);
    }
    return start;
  }

  void push(int32_t rank, int32_t instance) {
    events_.push({earliest(rank, instance), rank, instance});
  }

  void release(int32_t rank, int32_t instance, double time) {
    State& state = states_[rank];
    state.ready_at[instance] = std::max(state.ready_at[instance], time);
    if (--state.waits[instance] == 0) push(rank, instance);
  }

  double execute(int32_t rank, int32_t instance, double start) {
    const auto steps = static_cast<int32_t>(plans_[rank].program.steps.size());
    const int32_t slice = instance / steps;
    const int32_t number = instance % steps;
    const Step& step = plans_[rank].program.steps[number];
    const double end = start + (costs_.is_silent(step) ? 0 : costs_.of(rank, step).seconds);
    free_[rank] = end;
    core_of(rank) = {end, rank};
    for (const int32_t next : states_[rank].order.followers[number]) {
      release(rank, slice * steps + next, end);
    }
    if (step.kind == StepKind::send) {
      for (const int32_t peer : step.peers) deliver(rank, peer, slice, end);
    }
    return end;
  }

  void deliver(int32_t from, int32_t to, int32_t slice, double sent) {
    State& state = states_[to];
    const std::vector<int32_t>& receives = *state.receives[from];
    const int32_t step = receives[state.taken[slice][from]++];
    const auto steps = static_cast<int32_t>(plans_[to].program.steps.size());
    release(to, slice * steps + step, sent + costs_.latency(from, to));
  }

  std::span<const Plan> plans_;
  const StepCosts& costs_;
  const Machine& machine_;
  std::vector<double> free_;  // by rank
  std::vector<State> states_;
  std::vector<Core> cores_;
  size_t cores_per_host_ = 1;
  size_t ranks_per_host_ = 1;
  std::priority_queue<Event> events_;
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
  constexpr int kWalked = 5;  // slices; enough for the pipeline to run
  const StepCosts costs = costs_of(plans[0], bytes, dtype, machine);
  Prediction prediction;
  for (const Plan& plan : plans) {
    const Prediction busy = busy_time(plan, costs);
    if (busy.seconds > prediction.seconds) prediction = busy;
  }
  const int slices = static_cast<int>(std::max<uint32_t>(1, costs.slicing().slices));
  double seconds = Walk(plans, costs, machine, std::min(slices, kWalked)).run();
  if (slices > kWalked) {
    const double first = Walk(plans, costs, machine, 1).run();
    seconds += (seconds - first) / (kWalked - 1) * (slices - kWalked);
  }
  prediction.seconds = std::max(prediction.seconds, seconds + costs.call());
  return prediction;
}

double lower_bound(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine) {
  return busy_time(plan, costs_of(plan, bytes, dtype, machine)).seconds;
}

}  // namespace tutti
