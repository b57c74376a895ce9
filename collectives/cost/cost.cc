#include "collectives/cost/cost.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "collectives/cost/walk.h"

namespace tutti {

namespace {

// Processor time of a rank's steps. Multiplying or dividing data in a step that moves them costs
// next to nothing, because the data is in the L1 cache. Slices are cut as by the executor
// (chunk_map.h), so small calls fill only the first chunks.
class StepCosts {
 public:
  StepCosts(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine)
      : machine_(machine),
        near_(machine.model.link(machine.near_shm ? PathClass::shm : machine.far)),
        far_(machine.model.link(machine.far)) {
    const Collective collective = plan.collective;
    const int32_t ranks = plan.shape.ranks;
    element_ = size_of(dtype);
    accumulator_ = accumulator_bytes(dtype);
    widens_ = reduces(collective) && accumulator_of(dtype) != dtype;
    per_block_ =
        static_cast<uint64_t>(std::max(1, chunks_per_block(collective, plan.program, ranks)));
    count_ = bytes / element_;
    const uint64_t line = std::max<uint64_t>(1, 64 / element_);
    const uint64_t even = (count_ + per_block_ - 1) / per_block_;
    chunk_ = std::max<uint64_t>(1, (even + line - 1) / line * line);
    const uint64_t largest = std::min(chunk_, count_);
    const uint64_t widest = widest_form(plan.program, element_, widens_ ? accumulator_ : 0);
    slicing_ = slice_collective(collective, plan.program, largest, widest, false, machine.limits);
    // All slices except the last one are alike.
    slices_ = std::max(static_cast<double>(std::min<uint32_t>(slicing_.slices, 1)),
                       static_cast<double>(largest) / static_cast<double>(slicing_.elements));
    const uint64_t footprint =
        has_blocks(collective) ? bytes * static_cast<uint64_t>(ranks) : bytes;
    near_bytes_ = near_.at(footprint);
    far_bytes_ = far_.at(footprint);
    call_ = machine.hosts.count() == 1 ? near_.call : far_.call;
  }

  double call() const { return call_; }
  double latency(int32_t from, int32_t to) const { return link(from, to).latency; }
  const LinkCosts& near() const { return near_; }
  const LinkCosts& far() const { return far_; }
  // walked() is the number of slices to walk, and others() the number of further slices, which take
  // as long as the last walked slice.
  int walked() const { return static_cast<int>(std::min<uint32_t>(slicing_.slices, kWalked)); }
  double others() const { return std::max(0.0, slices_ - kWalked); }
  double times(int slice) const { return slice + 1 < walked() ? 1 : 1 + others(); }

  uint32_t slices() const { return slicing_.slices; }

  Prediction of(const Plan& plan, size_t index, int slice) const {
    const int32_t rank = plan.shape.rank;
    const Step& step = plan.program.steps[index];
    const bool local = is_local(step.kind);
    const uint64_t elements = count(step.kind == StepKind::send ? step.src : step.dst, slice);
    Prediction cost;
    // Messages without data are not sent, except tokens.
    if (elements == 0 && !(step.src.empty() && step.dst.empty())) return cost;
    const auto bytes_as = [&](bool accumulators) {
      return static_cast<double>(elements * (accumulators ? accumulator_ : element_));
    };
    const double wire = on_the_way(step, elements);
    if (local) {
      cost.messages = near_.local;
    } else if (step.kind != StepKind::send) {
      cost.messages = link(rank, step.peers[0]).recv;
      cost.moving = per_byte(rank, step.peers[0]).recv * wire;
    }
    switch (step.kind) {
      case StepKind::send:
        add_send(rank, step, wire, cost);
        if (machine_.in_kernel && index > 0 && can_forward(plan.program.steps[index - 1], step)) {
          // A fused send is not a step of its own and needs no further pass over the data.
          cost.messages -= std::min(far_.local, far_.send);
          cost.moving -= far_bytes_.send * wire;
        }
        break;
      case StepKind::recv_reduce:
        cost.reducing =
            std::max(0.0, per_byte(rank, step.peers[0]).recv_reduce * wire - cost.moving);
        break;
      case StepKind::reduce:
        cost.reducing = near_bytes_.reduce * bytes_as(widens_);
        break;
      case StepKind::copy:
        cost.moving = near_bytes_.copy * bytes_as(false);
        break;
      case StepKind::recv:
        break;
    }
    cost.seconds = cost.messages + cost.moving + cost.reducing;
    return cost;
  }

  bool is_near(int32_t a, int32_t b) const { return machine_.hosts.near(a, b); }
  // Returns the wire time of each of the step's messages to or from another host.
  double wire(int32_t rank, const Step& step, int slice) const {
    const auto is_far = [&](int32_t peer) { return !is_near(rank, peer); };
    if (far_.wire == 0 || std::ranges::none_of(step.peers, is_far)) return 0;
    return far_.wire *
           on_the_way(step, count(step.kind == StepKind::send ? step.src : step.dst, slice));
  }

 private:
  static constexpr int kWalked = 4;  // enough to fill the pipeline

  // Returns the number of elements that the ranges' chunks have in a slice.
  uint64_t count(const RangeList& ranges, int slice) const {
    const uint64_t start = static_cast<uint64_t>(slice) * slicing_.elements;
    const auto in_slice = [&](uint64_t length) {
      return length <= start ? 0 : std::min(slicing_.elements, length - start);
    };
    const uint64_t whole = std::min(count_ / chunk_, per_block_);  // full chunks of a block
    const uint64_t each = in_slice(chunk_);
    const uint64_t rest = whole < per_block_ ? in_slice(count_ - whole * chunk_) : 0;
    const auto up_to = [&](uint64_t chunk) {
      const uint64_t blocks =
          per_block_ == 1 ? chunk : (chunk < per_block_ ? 0 : chunk / per_block_);
      const uint64_t within = chunk - blocks * per_block_;
      return blocks * (whole * each + rest) + std::min(within, whole) * each +
             (within > whole ? rest : 0);
    };
    uint64_t elements = 0;
    for (const ChunkRange& range : ranges) {
      const auto first = static_cast<uint64_t>(range.first);
      elements += up_to(first + static_cast<uint64_t>(range.count)) - up_to(first);
    }
    return elements;
  }

  // Returns the number of bytes of a message.
  double on_the_way(const Step& step, uint64_t elements) const {
    const bool wide = widens_ && step.wire == Wire::accumulator;
    return static_cast<double>(elements * (wide ? accumulator_ : element_));
  }

  // Adds the cost of a send. Shared memory publishes a message once for all its readers; sockets
  // send it once per reader.
  void add_send(int32_t rank, const Step& step, double bytes, Prediction& cost) const {
    bool published = false;
    for (const int32_t peer : step.peers) {
      const bool shared = is_near(rank, peer) && machine_.near_shm;
      if (shared && std::exchange(published, true)) {
        cost.messages += near_.reader;
        continue;
      }
      cost.messages += link(rank, peer).send;
      cost.moving += per_byte(rank, peer).send * bytes;
    }
  }
  const LinkCosts& link(int32_t a, int32_t b) const { return is_near(a, b) ? near_ : far_; }
  const ByteCosts& per_byte(int32_t a, int32_t b) const {
    return is_near(a, b) ? near_bytes_ : far_bytes_;
  }

  const Machine& machine_;
  const LinkCosts& near_;
  const LinkCosts& far_;
  bool widens_ = false;  // the accumulator type differs from the element type
  uint64_t element_ = 1;
  uint64_t accumulator_ = 1;
  uint64_t per_block_ = 1;  // chunks per block
  uint64_t count_ = 0;      // elements of a block
  uint64_t chunk_ = 1;      // elements of a full chunk
  Slicing slicing_;
  double slices_ = 0;
  ByteCosts near_bytes_;
  ByteCosts far_bytes_;
  double call_ = 0;
};

// Time for which each wire is busy, per direction, in seconds (indexed by Timing::wire_of()).
struct Wires {
  std::vector<double> leaving;
  std::vector<double> entering;
};

// Adds the wire time of one rank's messages to other hosts over all slices, and appends each
// message's wire time by slice.
void add_wires(const Plan& plan, const StepCosts& costs, Timing& timing, Wires& wires) {
  const int32_t rank = plan.shape.rank;
  for (int slice = 0; slice < costs.walked(); ++slice) {
    for (const Step& step : plan.program.steps) {
      const double wire = step.kind == StepKind::send ? costs.wire(rank, step, slice) : 0;
      timing.wires[slice].push_back(wire);
      if (wire == 0) continue;
      const double all = wire * costs.times(slice);
      for (const int32_t peer : step.peers) {
        if (costs.is_near(rank, peer)) continue;
        const int32_t from = timing.hosts->host_of(rank);
        const int32_t to = timing.hosts->host_of(peer);
        wires.leaving[timing.wire_of(from, to)] += all;
        wires.entering[timing.wire_of(to, from)] += all;
      }
    }
  }
}

// Returns one rank's wire time: the longer of its sends to and its receives from other hosts.
double own_wire(const Plan& plan, const StepCosts& costs) {
  const int32_t rank = plan.shape.rank;
  double sent = 0;
  double received = 0;
  for (int slice = 0; slice < costs.walked(); ++slice) {
    for (const Step& step : plan.program.steps) {
      double& way = step.kind == StepKind::send ? sent : received;
      const double wire = costs.wire(rank, step, slice) * costs.times(slice);
      for (const int32_t peer : step.peers) way += costs.is_near(rank, peer) ? 0 : wire;
    }
  }
  return std::max(sent, received);
}

// Returns the time of one rank's own steps over all slices, and appends each step's time by slice.
Prediction busy_time(const Plan& plan, const StepCosts& costs,
                     std::vector<std::vector<double>>* steps) {
  Prediction busy;
  for (int slice = 0; slice < costs.walked(); ++slice) {
    const double times = costs.times(slice);
    for (size_t step = 0; step < plan.program.steps.size(); ++step) {
      const Prediction cost = costs.of(plan, step, slice);
      busy.messages += cost.messages * times;
      busy.moving += cost.moving * times;
      busy.reducing += cost.reducing * times;
      if (steps != nullptr) (*steps)[slice].push_back(cost.seconds);
    }
  }
  busy.messages += costs.call();
  busy.seconds = busy.messages + busy.moving + busy.reducing;
  return busy;
}

// Returns how long a rank waits for messages in one slice, on the assumption that the k-th message
// it receives was sent at the same time as the k-th message that it sends.
double waiting_time(const Plan& plan, const StepCosts& costs) {
  std::vector<double> done;  // by step: time at which it is done
  std::vector<double> sent;
  size_t received = 0;
  double free = 0;
  double waiting = 0;
  for (const Step& step : plan.program.steps) {
    double start = free;
    for (const int32_t need : plan.needs_of(static_cast<int32_t>(done.size()))) {
      start = std::max(start, done[need]);
    }
    const bool receives = tutti::receives(step.kind);
    if (receives && !sent.empty()) {
      const double arrival = sent[std::min(received++, sent.size() - 1)] +
                             costs.latency(step.peers[0], plan.shape.rank) +
                             costs.wire(plan.shape.rank, step, 0);
      start = std::max(start, arrival);
    }
    waiting += start - free;
    free = start + costs.of(plan, done.size(), 0).seconds;
    done.push_back(free);
    if (step.kind == StepKind::send) sent.push_back(free);
  }
  return waiting;
}

}  // namespace

Prediction predict(std::span<const Plan> plans, uint64_t bytes, DType dtype, const Machine& machine,
                   double give_up) {
  const StepCosts costs(plans[0], bytes, dtype, machine);
  Timing timing{.steps = std::vector<std::vector<double>>(costs.walked()),
                .wires = std::vector<std::vector<double>>(costs.walked()),
                .near_latency = costs.near().latency,
                .far_latency = costs.far().latency,
                .switch_time = machine.model.switch_time,
                .hosts = &machine.hosts,
                .wire_for_each_pair = machine.wire_for_each_pair,
                .cores = machine.model.cores,
                .slices_in_turn = machine.in_kernel};
  Prediction prediction;
  std::vector<double> work(timing.all_cores(), 0);
  Wires wires{.leaving = std::vector<double>(timing.all_wires(), 0), .entering = {}};
  wires.entering = wires.leaving;
  for (const Plan& plan : plans) {
    const Prediction busy = busy_time(plan, costs, &timing.steps);
    add_wires(plan, costs, timing, wires);
    work[timing.core_of(plan.shape.rank)] += busy.seconds;
    if (busy.seconds > prediction.seconds) prediction = busy;
  }
  // The call takes at least as long as the work of the busiest core and of the busiest wire.
  prediction.cores = std::ranges::max(work);
  for (const std::vector<double>* way : {&wires.leaving, &wires.entering}) {
    const auto busiest = std::ranges::max_element(*way);
    if (*busiest <= prediction.wire) continue;
    prediction.wire = *busiest;
    const auto wire = static_cast<int32_t>(busiest - way->begin());
    prediction.host = machine.wire_for_each_pair ? wire / machine.hosts.count() : wire;
    prediction.enters = way == &wires.entering;
  }
  prediction.seconds = std::max(prediction.cores, prediction.wire);
  if (timing.steps.empty() || prediction.seconds > give_up) return prediction;
  const std::vector<double> ends = walk(plans, timing, give_up - costs.call());
  if (ends.empty()) {
    prediction.seconds = std::numeric_limits<double>::infinity();
    return prediction;
  }
  double seconds = std::ranges::max(ends) + costs.call();
  // The first slices fill the pipeline; the last two give its steady rate.
  if (costs.others() > 0) seconds += (ends.back() - ends[ends.size() - 2]) * costs.others();
  prediction.seconds = std::max(prediction.seconds, seconds);
  return prediction;
}

uint32_t slices_of(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine) {
  return StepCosts(plan, bytes, dtype, machine).slices();
}

double rough_time(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine) {
  constexpr uint64_t kLine = 64;
  const auto chunks = chunks_per_block(plan.collective, plan.program, plan.shape.ranks);
  const StepCosts costs(plan, std::max(bytes, kLine * static_cast<uint64_t>(std::max(1, chunks))),
                        dtype, machine);
  const double busy = busy_time(plan, costs, nullptr).seconds;
  const double sharing =
      std::max(1.0, static_cast<double>(machine.hosts.largest()) / machine.model.cores);
  return std::max({sharing * busy, busy + waiting_time(plan, costs), own_wire(plan, costs)});
}

double lower_bound(const Plan& plan, uint64_t bytes, DType dtype, const Machine& machine) {
  const StepCosts costs(plan, bytes, dtype, machine);
  return std::max(busy_time(plan, costs, nullptr).seconds, own_wire(plan, costs));
}

}  // namespace tutti
