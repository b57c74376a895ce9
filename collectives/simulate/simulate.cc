#include "collectives/simulate/simulate.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <span>

#include "base/error.h"
#include "base/mix_bits.h"
#include "base/text.h"
#include "collectives/simulate/fair_sharing.h"
#include "collectives/simulate/trouble.h"

namespace tutti {

namespace {

constexpr double kBytesPerUs = 1e3;  // bytes per us at 1 GB/s
// Events whose times differ by less than this fraction are simultaneous, because times have
// rounding errors.
constexpr double kSameMoment = 1e-12;

using Flow = FairSharing::Flow;

struct Event {
  enum class Kind : uint8_t { rank_begins, step_ends, message_goes, flow_ends, message_comes };
  double time;
  Kind kind;
  int32_t which;        // index of the rank, step, message or flow
  uint32_t turn = 0;    // slice; flow_ends: Transfer::prediction at that time
  uint64_t number = 0;  // simultaneous events keep the order of this number

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

// A message in flight. transfers_ is indexed by the flows of FairSharing.
struct Transfer {
  int32_t message = 0;
  int32_t sender = 0;  // index of the sending step
  uint32_t turn = 0;
  uint32_t prediction = 0;
  double left = 0;  // bytes that are left
  double since = 0;
  double rate = 0;
  double latency = 0;
};

struct Spread {
  int ways = 1;
  double latency = 0;
};

double random_factor(double jitter, uint64_t seed, uint64_t message, uint64_t turn) {
  if (jitter == 0) return 1;
  const uint64_t x = mix_bits(seed + kGolden * (1 + message + (turn << 40)));
  return 1 + jitter * (static_cast<double>(x >> 11) * 0x1p-52 - 1);
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, Network& network, const SimulationOptions& options)
      : s_(schedule), network_(network), o_(options), sharing_(capacities(network)) {
    const auto steps = static_cast<size_t>(s_.steps());
    slices_ = s_.bytes.empty() ? std::max(1, o_.slices) : 1;
    chunk_bytes_ = o_.bytes / slices_ / s_.buffer_chunks;
    waits_.resize(steps * static_cast<size_t>(slices_));
    for (int32_t slice = 0; slice < slices_; ++slice) {
      for (int32_t step = 0; step < s_.steps(); ++step) {
        waits_[at(step, slice)] = s_.waits[step];
      }
    }
    ends_.assign(static_cast<size_t>(s_.walked()), 0);
    processor_free_.assign(static_cast<size_t>(s_.walked()), 0);
    sends_left_.assign(steps * static_cast<size_t>(slices_), 0);
    traffic_.assign(static_cast<size_t>(network.graph().arcs()), 0);
    left_ = static_cast<int64_t>(waits_.size());
    if (slices_ > 1) queues_.resize(static_cast<size_t>(s_.connections));
    sender_.resize(s_.messages.size());
    for (int32_t step = 0; step < s_.steps(); ++step) {
      for (int32_t m = s_.first_message[step]; m < s_.first_message[step + 1]; ++m)
        sender_[m] = step;
    }
  }

  SimulationResult run() {
    begin_ranks();
    const auto all = static_cast<double>(left_);
    int64_t reported = left_;
    while (!events_.empty() && !stopped_) {
      const double now = events_.top().time;
      if (now > o_.give_up_us || sharing_.work() > o_.most_work) {
        result_.time_us = std::numeric_limits<double>::infinity();
        return result_;
      }
      const double until = now * (1 + kSameMoment);
      while (!events_.empty() && events_.top().time <= until) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      sharing_.settle([&](Flow flow) { predict(flow, now); });
      if (o_.progress && reported - left_ > 100'000) {
        reported = left_;
        o_.progress(1 - static_cast<double>(left_) / all);
      }
    }
    if (left_ > 0 && !stopped_) throw stopped(s_, o_.failed_ranks, unfinished());
    const auto last = std::ranges::max_element(ends_);
    result_.time_us = *last;
    result_.last_rank = static_cast<int32_t>(last - ends_.begin()) * s_.alike;
    result_.first_us = std::ranges::min(ends_);
    find_busiest();
    return result_;
  }

 private:
  static std::vector<double> capacities(const Network& network) {
    std::vector<double> capacities;
    for (Arc arc = 0; arc < network.graph().arcs(); ++arc) {
      capacities.push_back(network.GBps(arc) * kBytesPerUs);
    }
    return capacities;
  }

  size_t at(int32_t step, uint32_t slice) const {
    return static_cast<size_t>(slice) * static_cast<size_t>(s_.steps()) + static_cast<size_t>(step);
  }

  void add(double time, Event::Kind kind, int32_t which, uint32_t turn) {
    events_.push({time, kind, which, turn, next_event_++});
  }

  // Begins all ranks. A straggler begins after its delay, and a failed rank never begins.
  void begin_ranks() {
    const auto is_late = [&](int32_t rank) {
      return std::ranges::count(o_.failed_ranks, rank) > 0 ||
             std::ranges::any_of(o_.stragglers, [&](const auto& s) { return s.first == rank; });
    };
    for (int32_t walked = 0; walked < s_.walked(); ++walked) {
      const int32_t rank = walked * s_.alike;
      if (!is_late(rank)) continue;
      for (int32_t step = s_.first_step[walked]; step < s_.first_step[walked + 1]; ++step) {
        for (int32_t slice = 0; slice < slices_; ++slice) ++waits_[at(step, slice)];
      }
    }
    for (int32_t step = 0; step < s_.steps(); ++step) {
      for (int32_t slice = 0; slice < slices_; ++slice) {
        if (waits_[at(step, slice)] == 0) ready_.push_back({step, static_cast<uint32_t>(slice)});
      }
    }
    for (const auto& [rank, late] : o_.stragglers) {
      if (std::ranges::count(o_.failed_ranks, rank) > 0) continue;
      add(late, Event::Kind::rank_begins, rank / s_.alike, 0);
    }
    do_ready(0);
    sharing_.settle([&](Flow flow) { predict(flow, 0); });
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::rank_begins:
        for (int32_t step = s_.first_step[event.which]; step < s_.first_step[event.which + 1];
             ++step) {
          for (int32_t slice = 0; slice < slices_; ++slice) one_less(step, slice);
        }
        break;
      case Event::Kind::step_ends:
        finish(event.which, event.turn, event.time);
        break;
      case Event::Kind::message_goes:
        send(event.which, event.turn, event.time);
        break;
      case Event::Kind::flow_ends:
        if (event.turn == transfers_[event.which].prediction) end_flow(event.which, event.time);
        break;
      case Event::Kind::message_comes:
        one_less(s_.messages[event.which].step, event.turn);
        break;
    }
    do_ready(event.time);
  }

  void one_less(int32_t step, uint32_t slice) {
    if (--waits_[at(step, slice)] == 0) ready_.push_back({step, slice});
  }

  void do_ready(double now) {
    while (!ready_.empty()) {
      const auto [step, slice] = ready_.back();
      ready_.pop_back();
      begin(step, slice, now);
    }
  }

  double bytes_of(int32_t step) const {
    return s_.bytes.empty() ? s_.chunks[step] * chunk_bytes_ : s_.bytes[step];
  }

  void begin(int32_t step, uint32_t slice, double now) {
    const StepKind kind = s_.kinds[step];
    if (kind == StepKind::send) {
      begin_send(step, slice, now);
      return;
    }
    double work = kind == StepKind::recv ? 0 : bytes_of(step) / (o_.reduce_GBps * kBytesPerUs);
    if (!s_.compute_us.empty()) work += s_.compute_us[step];
    end_after(work, step, slice, now);
  }

  // Adds work to the processor of a step's rank. The work begins when the processor is free.
  // Returns the time at which the work ends.
  double after_work(double work, int32_t step, double now) {
    if (work == 0) return now;
    double& free = processor_free_[s_.rank_of(step) / s_.alike];
    free = std::max(free, now) + work;
    return free;
  }
  void end_after(double work, int32_t step, uint32_t slice, double now) {
    if (work == 0) {
      finish(step, slice, now);
    } else {
      add(after_work(work, step, now), Event::Kind::step_ends, step, slice);
    }
  }

  void begin_send(int32_t step, uint32_t slice, double now) {
    const int32_t first = s_.first_message[step];
    const int32_t last = s_.first_message[step + 1];
    sends_left_[at(step, slice)] = last - first;
    for (int32_t message = first; message < last; ++message) {
      if (o_.overhead_us > 0) {
        add(after_work(o_.overhead_us, step, now), Event::Kind::message_goes, message, slice);
      } else {
        send(message, slice, now);
      }
    }
  }

  // Sends a slice. The slices of one connection are sent one after another, in the order in which
  // they are ready.
  void send(int32_t message, uint32_t slice, double now) {
    if (slices_ == 1) {
      begin_flow(message, slice, now);
      return;
    }
    std::deque<std::pair<int32_t, uint32_t>>& queue = queues_[s_.messages[message].connection];
    queue.emplace_back(message, slice);
    if (queue.size() == 1) begin_flow(message, slice, now);
  }
  void send_next(int32_t message, double now) {
    if (slices_ == 1) return;
    std::deque<std::pair<int32_t, uint32_t>>& queue = queues_[s_.messages[message].connection];
    queue.pop_front();
    if (!queue.empty()) begin_flow(queue.front().first, queue.front().second, now);
  }

  // Finds all paths of the messages that this message represents. Returns the number of paths over
  // which each message is split, and the latency of the slowest path.
  Spread find_ways(const Schedule::Message& message) {
    arcs_.clear();
    Spread spread;
    for (int32_t i = 0; i < s_.alike; ++i) {
      const size_t begin = arcs_.size();
      const int32_t from = s_.image(message.from, i);
      const int32_t to = s_.image(message.to, i);
      spread.ways = network_.route(from, to, arcs_);
      if (spread.ways == 0) throw cut_off(network_, s_.ranks, from, to);
      const std::span<const Arc> arcs = std::span(arcs_).subspan(begin);
      spread.latency = std::max(spread.latency, network_.slowest_us(arcs, spread.ways));
    }
    return spread;
  }

  void begin_flow(int32_t number, uint32_t slice, double now) {
    const Schedule::Message& message = s_.messages[number];
    const int32_t sender = sender_[number];
    const double factor = random_factor(o_.jitter, o_.seed, static_cast<uint64_t>(number), slice);
    const double bytes = bytes_of(sender);
    const Spread spread = o_.instant_messages ? Spread() : find_ways(message);
    const double latency = spread.latency * factor;
    result_.messages += s_.alike;
    result_.bytes_sent += bytes * s_.alike;
    if (bytes == 0 || arcs_.empty()) {
      add(now + latency, Event::Kind::message_comes, number, slice);
      one_sent(sender, slice, now);
      send_next(number, now);
      return;
    }
    // The parts of a message form one flow, which has the rate of the slowest part.
    const double part = bytes / spread.ways;
    for (const Arc arc : arcs_) traffic_[static_cast<size_t>(arc)] += part;
    const Flow flow = sharing_.begin(arcs_);
    if (flow >= transfers_.size()) transfers_.resize(flow + 1);
    Transfer& transfer = transfers_[flow];
    transfer = {.message = number,
                .sender = sender,
                .turn = slice,
                .prediction = transfer.prediction + 1,
                .left = part * factor,
                .since = now,
                .rate = 0,
                .latency = latency};
  }

  // Predicts when a flow ends after its rate has changed.
  void predict(Flow flow, double now) {
    Transfer& transfer = transfers_[flow];
    const double rate = sharing_.rate(flow);
    if (rate == transfer.rate) return;
    if (transfer.rate > 0) {
      transfer.left = std::max(0.0, transfer.left - transfer.rate * (now - transfer.since));
      transfer.since = std::max(transfer.since, now);
    }
    transfer.rate = rate;
    add(transfer.since + transfer.left / rate, Event::Kind::flow_ends, static_cast<int32_t>(flow),
        ++transfer.prediction);
  }

  void end_flow(int32_t flow, double now) {
    const Transfer transfer = transfers_[flow];
    transfers_[flow].prediction++;
    sharing_.end(static_cast<Flow>(flow));
    add(now + transfer.latency, Event::Kind::message_comes, transfer.message, transfer.turn);
    one_sent(transfer.sender, transfer.turn, now);
    send_next(transfer.message, now);
  }

  void one_sent(int32_t step, uint32_t slice, double now) {
    if (--sends_left_[at(step, slice)] == 0) finish(step, slice, now);
  }

  void finish(int32_t step, uint32_t slice, double now) {
    --left_;
    waits_[at(step, slice)] = -1;
    double& end = ends_[static_cast<size_t>(s_.rank_of(step) / s_.alike)];
    end = std::max(end, now);
    stopped_ = stopped_ || (o_.stops_after && o_.stops_after(step, now));
    for (const int32_t follower : s_.followers_of(step)) one_less(follower, slice);
  }

  void find_busiest() {
    for (Arc arc = 0; arc < network_.graph().arcs(); ++arc) {
      const double part =
          traffic_[static_cast<size_t>(arc)] / (network_.GBps(arc) * kBytesPerUs * result_.time_us);
      // The comparison is false for NaN, which results if the time is 0.
      if (!(part > result_.busiest_part)) continue;
      result_.busiest_part = part;
      result_.busiest = arc;
    }
  }

  std::vector<int> unfinished() const {
    std::vector<int> ranks;
    for (int32_t walked = 0; walked < s_.walked(); ++walked) {
      bool left = false;
      for (int32_t step = s_.first_step[walked]; step < s_.first_step[walked + 1]; ++step) {
        for (int32_t slice = 0; slice < slices_; ++slice) left |= waits_[at(step, slice)] >= 0;
      }
      if (left) ranks.push_back(walked * s_.alike);
    }
    return ranks;
  }

  const Schedule& s_;
  Network& network_;
  const SimulationOptions& o_;
  FairSharing sharing_;
  int32_t slices_ = 1;
  double chunk_bytes_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_event_ = 0;
  std::vector<std::pair<int32_t, uint32_t>> ready_;  // steps that are ready, with their slices
  std::vector<int32_t> waits_;       // by slice, then step: number of awaited events; -1: done
  std::vector<int32_t> sends_left_;  // by slice, then step: number of messages to send
  std::vector<int32_t> sender_;      // by message: the step that sends it
  // One queue per connection: messages with their slices. The first one is in flight, the others
  // wait.
  std::vector<std::deque<std::pair<int32_t, uint32_t>>> queues_;
  std::vector<double> processor_free_;  // by walked rank: when it is free
  std::vector<double> ends_;
  std::vector<Transfer> transfers_;  // transfers by flow
  std::vector<double> traffic_;      // bytes by arc
  std::vector<Arc> arcs_;
  int64_t left_ = 0;  // number of unfinished steps
  bool stopped_ = false;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const Schedule& schedule, Network& network,
                          const SimulationOptions& options) {
  return Simulation(schedule, network, options).run();
}

}  // namespace tutti
