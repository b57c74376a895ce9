#include "collectives/interchange/timing.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr int32_t kUnknown = -1;

class Timer {
 public:
  explicit Timer(std::span<const Plan> plans) : plans_(plans) {
    for (const Plan& plan : plans) {
      started_.emplace_back(plan.program.steps.size(), kUnknown);
      timing_.ended.emplace_back(plan.program.steps.size(), kUnknown);
      cursors_.emplace_back(plan.queues.size(), 0);
      for (size_t q = 0; q < plan.queues.size(); ++q) {
        queues_[{plan.shape.rank, plan.queues[q].kind, plan.queues[q].peer}] =
            static_cast<int32_t>(q);
      }
    }
  }

  Timing run() {
    for (bool moved = true; std::exchange(moved, false);) {
      for (size_t rank = 0; rank < plans_.size(); ++rank) {
        for (size_t q = 0; q < plans_[rank].queues.size(); ++q) {
          while (advance(static_cast<int32_t>(rank), static_cast<int32_t>(q))) moved = true;
        }
      }
    }
    for (const std::vector<int32_t>& ended : timing_.ended) {
      if (std::ranges::find(ended, kUnknown) != ended.end()) {
        throw Error(ErrorCode::invalid_argument, "the programs make no progress",
                    {.remedy = "prove them first"});
      }
    }
    std::ranges::stable_sort(timing_.messages, {}, &TimedMessage::sent);
    return std::move(timing_);
  }

 private:
  bool advance(int32_t rank, int32_t queue) {
    const Plan& plan = plans_[rank];
    const std::vector<int32_t>& steps = plan.queues[queue].steps;
    const size_t position = cursors_[rank][queue];
    if (position == steps.size()) return false;
    const int32_t number = steps[position];
    int32_t time = 0;
    for (const int32_t need : plan.needs_of(number)) {
      if (timing_.ended[rank][need] == kUnknown) return false;
      time = std::max(time, timing_.ended[rank][need]);
    }
    switch (plan.queues[queue].kind) {
      case Plan::QueueKind::local:
        if (position > 0) time = std::max(time, timing_.ended[rank][steps[position - 1]]);
        break;
      case Plan::QueueKind::send:
        return send(rank, number, time);
      case Plan::QueueKind::recv:
        if (!receive(rank, queue, time)) return false;
        break;
    }
    end(rank, number, time);
    ++cursors_[rank][queue];
    return true;
  }

  // Once, in all queues that it stands in.
  bool send(int32_t rank, int32_t number, int32_t time) {
    const Plan& plan = plans_[rank];
    std::vector<int32_t> all = plan.send_queues[number];
    if (all.empty()) {
      all = {queues_.at({rank, Plan::QueueKind::send, plan.program.steps[number].peers[0]})};
    }
    for (const int32_t q : all) {
      const std::vector<int32_t>& steps = plan.queues[q].steps;
      const size_t position = cursors_[rank][q];
      if (position == steps.size() || steps[position] != number) return false;
      if (position > 0) time = std::max(time, started_[rank][steps[position - 1]] + 1);
    }
    for (const int32_t q : all) ++cursors_[rank][q];
    started_[rank][number] = time;
    end(rank, number, time + 1);
    return true;
  }

  // The k-th message is the k-th that was sent.
  bool receive(int32_t rank, int32_t queue, int32_t& time) {
    const Plan::Queue& incoming = plans_[rank].queues[queue];
    const size_t position = cursors_[rank][queue];
    const auto found = queues_.find({incoming.peer, Plan::QueueKind::send, rank});
    if (found == queues_.end()) return false;
    const std::vector<int32_t>& sent = plans_[incoming.peer].queues[found->second].steps;
    if (position >= cursors_[incoming.peer][found->second]) return false;
    const int32_t number = incoming.steps[position];
    const int32_t start = started_[incoming.peer][sent[position]];
    time = std::max(time, start + 1);
    if (position > 0) time = std::max(time, timing_.ended[rank][incoming.steps[position - 1]]);
    timing_.messages.push_back({.from = incoming.peer,
                                .to = rank,
                                .send_step = sent[position],
                                .recv_step = number,
                                .sent = start,
                                .taken = time});
    return true;
  }

  void end(int32_t rank, int32_t number, int32_t time) {
    timing_.ended[rank][number] = time;
    timing_.rounds = std::max(timing_.rounds, time);
  }

  std::span<const Plan> plans_;
  Timing timing_;
  std::vector<std::vector<int32_t>> started_;  // by rank and step; sends
  std::vector<std::vector<size_t>> cursors_;   // by rank and queue
  // By rank, kind and peer.
  std::map<std::tuple<int32_t, Plan::QueueKind, int32_t>, int32_t> queues_;
};

}  // namespace

Timing time_steps(std::span<const Plan> plans) { return Timer(plans).run(); }

}  // namespace tutti
