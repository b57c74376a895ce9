#include "collectives/gpu/lending.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

namespace tutti::gpu {

namespace {

bool lies_in_buffers(std::span<const Piece> pieces) {
  return std::ranges::all_of(pieces, [](const Piece& piece) {
    return piece.space != Space::scratch && !piece.widened && !piece.scales;
  });
}

// Returns true if the message is unconverted data in the sender's buffers and the receiver stores
// it in pieces of the same lengths and order.
bool can_be_lent(const BoundStep& send, const BoundStep& receive) {
  const auto length = [](const Piece& piece) { return piece.length; };
  return !send.src.empty() && !send.widened && lies_in_buffers(send.src) &&
         std::ranges::equal(send.src, receive.dst, {}, length, length);
}

// Returns the chunks' locations in an in-place call.
std::vector<int64_t> locations(const Plan& plan, const RangeList& ranges) {
  std::vector<int64_t> found;
  for_each_chunk(ranges, [&](Space space, int32_t chunk) {
    found.push_back(location(plan.collective, plan.program, plan.shape, space, chunk));
  });
  return found;
}

class Lending {
 public:
  Lending(std::span<const Plan> plans, std::span<const CompiledCall> compiled,
          std::vector<Actions> actions)
      : plans_(plans), compiled_(compiled), actions_(std::move(actions)) {}

  // Returns true if anything was lent.
  bool lend_messages() {
    struct Sent {
      Action* action;
      int32_t step;  // index of the sending step
    };
    std::map<std::pair<int32_t, int32_t>, std::deque<Sent>> connections;
    const auto of_all = [&](const auto& visit) {
      for (size_t rank = 0; rank < actions_.size(); ++rank) {
        for (Action& action : actions_[rank]) visit(static_cast<int32_t>(rank), action);
      }
    };
    of_all([&](int32_t rank, Action& action) {
      const Step& step = step_of(rank, action.step);
      const int32_t to = action.sends(step);
      if (to < 0) return;
      const int32_t sends = step.kind == StepKind::send ? action.step : action.forwards;
      connections[{rank, to}].push_back({&action, sends});
    });
    bool lends = false;
    of_all([&](int32_t rank, Action& action) {
      const Step& step = step_of(rank, action.step);
      if (!receives(step.kind)) return;
      const int32_t from = step.peers[0];
      std::deque<Sent>& sent = connections[{from, rank}];
      const Sent message = sent.front();
      sent.pop_front();
      if (!can_be_lent(bound_of(from, message.step), bound_of(rank, action.step))) return;
      action.lender_step = message.step;
      action.lender = from;
      message.action->lend = 0;  // number_and_await() sets the index
      lends = true;
    });
    return lends;
  }

  // Numbers the loans of each rank, and makes actions that overwrite a loan wait for its readers.
  void number_and_await() {
    for (size_t rank = 0; rank < actions_.size(); ++rank) {
      const Plan& plan = plans_[rank];
      std::vector<std::pair<int64_t, int32_t>> lent;  // location and index of each loan
      int32_t numbers = 0;
      for (Action& action : actions_[rank]) {
        const Step& step = step_of(rank, action.step);
        for (const int64_t at : locations(plan, step.dst)) await(action, lent, at);
        if (action.lend < 0) continue;
        action.lend = numbers++;
        const bool sends = step.kind == StepKind::send;
        const Step& send = sends ? step : step_of(rank, action.forwards);
        for (const int64_t at : locations(plan, send.src)) lent.emplace_back(at, action.lend);
      }
    }
  }

  std::vector<Actions> take() { return std::move(actions_); }

 private:
  static void await(Action& action, std::vector<std::pair<int64_t, int32_t>>& lent, int64_t at) {
    std::erase_if(lent, [&](const auto& one) {
      if (one.first != at) return false;
      if (std::ranges::find(action.awaited, one.second) == action.awaited.end()) {
        action.awaited.push_back(one.second);
      }
      return true;
    });
  }

  const Step& step_of(size_t rank, int32_t step) const {
    return plans_[rank].program.steps[static_cast<size_t>(step)];
  }
  const BoundStep& bound_of(size_t rank, int32_t step) const {
    return compiled_[rank].bound_steps[static_cast<size_t>(step)];
  }

  std::span<const Plan> plans_;
  std::span<const CompiledCall> compiled_;
  std::vector<Actions> actions_;
};

}  // namespace

bool may_lend(const Request& request) { return !request.uneven && !has_root(request.collective); }

std::optional<std::vector<Actions>> lend(std::span<const Plan> plans,
                                         std::span<const CompiledCall> compiled,
                                         std::vector<Actions> plain, uint32_t room) {
  Lending lending(plans, compiled, std::move(plain));
  if (!lending.lend_messages()) return std::nullopt;
  lending.number_and_await();
  std::vector<Actions> lent = lending.take();
  if (!ends(plans, lent, room)) return std::nullopt;
  return lent;
}

}  // namespace tutti::gpu
