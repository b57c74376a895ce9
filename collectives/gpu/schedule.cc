#include "collectives/gpu/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "collectives/program/joint_walk.h"

namespace tutti::gpu {

namespace {

// Counts the messages that are in flight and that have been read between any two ranks.
class Connections {
 public:
  explicit Connections(uint32_t room) : room_(room) {}

  bool has_room(int32_t from, int32_t to) { return in_flight_[{from, to}] < room_; }
  bool has_message(int32_t from, int32_t to) { return in_flight_[{from, to}] > 0; }
  void send(int32_t from, int32_t to) { ++in_flight_[{from, to}]; }
  void receive(int32_t from, int32_t to) {
    --in_flight_[{from, to}];
    ++read_[{from, to}];
  }
  uint32_t read(int32_t from, int32_t to) { return read_[{from, to}]; }
  uint32_t sent(int32_t from, int32_t to) { return read(from, to) + in_flight_[{from, to}]; }

 private:
  const uint32_t room_;
  std::map<std::pair<int32_t, int32_t>, uint32_t> in_flight_;
  std::map<std::pair<int32_t, int32_t>, uint32_t> read_;
};

// Walks the queues of all ranks' plans together, and returns the order in which each rank's steps
// begin.
std::vector<Actions> orders(std::span<const Plan> plans, uint32_t room) {
  std::vector<Actions> orders(plans.size());
  Connections connections(room);
  JointWalk walk(plans);
  walk.run([&](int32_t rank, int32_t number) {
    const Step& step = plans[static_cast<size_t>(rank)].program.steps[static_cast<size_t>(number)];
    Actions& order = orders[static_cast<size_t>(rank)];
    if (step.kind == StepKind::send) {
      for (const int32_t peer : step.peers) {
        if (!connections.has_room(rank, peer)) return Attempt::waits;
      }
      for (const int32_t peer : step.peers) {
        connections.send(rank, peer);
        order.push_back({.step = number, .sends_to = peer});
        walk.wake(peer);
      }
      return Attempt::finished;
    }
    if (receives(step.kind)) {
      if (!connections.has_message(step.peers[0], rank)) return Attempt::waits;
      connections.receive(step.peers[0], rank);
      walk.wake(step.peers[0]);
    }
    order.push_back({.step = number});
    return Attempt::finished;
  });
  if (!walk.ended()) {
    throw Error(ErrorCode::internal,
                "a program that was proved to terminate does not terminate on a GPU");
  }
  return orders;
}

Actions with_forwarding(const Program& program, const Actions& order) {
  Actions actions;
  for (size_t i = 0; i < order.size(); ++i) {
    actions.push_back(order[i]);
    if (i + 1 == order.size()) break;
    const Step& step = program.steps[static_cast<size_t>(order[i].step)];
    const Action& next = order[i + 1];
    if (!can_forward(step, program.steps[static_cast<size_t>(next.step)])) continue;
    actions.back().forwards = next.step;
    actions.back().forwards_to = next.sends_to;
    ++i;
  }
  return actions;
}

// Walks all ranks' actions. Each rank runs its actions in the given order.
class InOrder {
 public:
  InOrder(std::span<const Plan> plans, std::span<const Actions> actions, uint32_t room)
      : plans_(plans),
        actions_(actions),
        next_(plans.size()),
        lent_(plans.size()),
        connections_(room) {}

  bool end() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < plans_.size(); ++rank) moved |= proceed(rank);
    }
    for (size_t rank = 0; rank < plans_.size(); ++rank) {
      if (next_[rank] < actions_[rank].size()) return false;
    }
    return true;
  }

 private:
  struct Loan {
    int32_t to = 0;
    uint32_t messages = 0;  // number of messages sent to `to`, including the loan
  };

  bool proceed(size_t rank) {
    const size_t before = next_[rank];
    while (next_[rank] < actions_[rank].size() && take(rank, actions_[rank][next_[rank]])) {
      ++next_[rank];
    }
    return next_[rank] > before;
  }
  bool take(size_t rank, const Action& action) {
    const auto self = static_cast<int32_t>(rank);
    const Step& step = plans_[rank].program.steps[static_cast<size_t>(action.step)];
    const std::vector<int32_t> to = action.to_all ? others(self) : peer(action.sends(step));
    const std::vector<int32_t> from =
        action.from_all ? others(self) : peer(receives(step.kind) ? step.peers[0] : -1);
    for (const int32_t lend : action.awaited) {
      const Loan& lent = lent_[rank].at(lend);
      if (connections_.read(self, lent.to) < lent.messages) return false;
    }
    const auto has_message = [&](int32_t other) { return connections_.has_message(other, self); };
    const auto has_room = [&](int32_t other) { return connections_.has_room(self, other); };
    if (!std::ranges::all_of(from, has_message) || !std::ranges::all_of(to, has_room)) return false;
    for (const int32_t other : from) connections_.receive(other, self);
    for (const int32_t other : to) connections_.send(self, other);
    if (action.lend >= 0) lent_[rank][action.lend] = {to[0], connections_.sent(self, to[0])};
    return true;
  }
  static std::vector<int32_t> peer(int32_t one) {
    return one < 0 ? std::vector<int32_t>() : std::vector<int32_t>{one};
  }
  std::vector<int32_t> others(int32_t self) const {
    std::vector<int32_t> all;
    for (int32_t rank = 0; std::cmp_less(rank, plans_.size()); ++rank) {
      if (rank != self) all.push_back(rank);
    }
    return all;
  }

  std::span<const Plan> plans_;
  std::span<const Actions> actions_;
  std::vector<size_t> next_;
  std::vector<std::map<int32_t, Loan>> lent_;  // by rank, then by index of the loan
  Connections connections_;
};

}  // namespace

bool ends(std::span<const Plan> plans, std::span<const Actions> actions, uint32_t room) {
  return InOrder(plans, actions, room).end();
}

std::vector<Actions> schedule(std::span<const Plan> plans, uint32_t room) {
  std::vector<Actions> plain = orders(plans, room);
  std::vector<Actions> forwarding;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    forwarding.push_back(with_forwarding(plans[rank].program, plain[rank]));
  }
  return ends(plans, forwarding, room) ? forwarding : plain;
}

}  // namespace tutti::gpu
