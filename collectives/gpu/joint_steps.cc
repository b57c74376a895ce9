#include "collectives/gpu/joint_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace tutti::gpu {

namespace {

// Returns the single chunk of a list; null if there are none or several.
const ChunkRange* only_chunk(const RangeList& ranges) {
  return ranges.size() == 1 && ranges[0].count == 1 ? ranges.data() : nullptr;
}

// Content of a chunk: the sum of an input chunk over some ranks, and the actions that produced it.
struct Sum {
  int32_t chunk = -1;  // -1: the content is something else
  std::set<int32_t> ranks;
  std::set<size_t> actions;
};

std::optional<Sum> together(const std::optional<Sum>& a, const std::optional<Sum>& b) {
  if (!a || !b || a->chunk != b->chunk) return std::nullopt;
  Sum sum = *a;
  sum.ranks.insert(b->ranks.begin(), b->ranks.end());
  sum.actions.insert(b->actions.begin(), b->actions.end());
  if (sum.ranks.size() != a->ranks.size() + b->ranks.size()) return std::nullopt;
  return sum;
}

// All ranks' actions, and the pairs of actions that send and receive a message.
class Calls {
 public:
  Calls(std::span<const Plan> plans, std::span<const Actions> actions)
      : plans_(plans), actions_(actions) {
    std::map<std::pair<int32_t, int32_t>, std::vector<Place>> sent;
    visit([&](int32_t rank, size_t at) {
      const int32_t to = action(rank, at).sends(step(rank, at));
      if (to >= 0) sent[{rank, to}].push_back({rank, at});
    });
    std::map<std::pair<int32_t, int32_t>, size_t> received;
    visit([&](int32_t rank, size_t at) {
      for (const int32_t from : senders(rank, at)) {
        const Place sender = sent[{from, rank}][received[{from, rank}]++];
        sender_[{{rank, at}, from}] = sender;
        receiver_[{sender, rank}] = {rank, at};
      }
    });
  }

  using Place = std::pair<int32_t, size_t>;  // a rank and the index of its action

  const Action& action(int32_t rank, size_t at) const { return actions_[rank][at]; }
  const Step& step(int32_t rank, size_t at) const { return step(rank, action(rank, at).step); }
  const Step& step(int32_t rank, int32_t number) const {
    return plans_[rank].program.steps[static_cast<size_t>(number)];
  }
  // Returns the step by which the action sends.
  const Step& send_of(int32_t rank, size_t at) const {
    const Action& one = action(rank, at);
    return one.forwards >= 0 ? step(rank, one.forwards) : step(rank, one.step);
  }
  std::vector<int32_t> senders(int32_t rank, size_t at) const {
    if (!action(rank, at).from_all) {
      return receives(step(rank, at).kind) ? step(rank, at).peers : std::vector<int32_t>();
    }
    std::vector<int32_t> all;
    for (int32_t peer = 0; peer < ranks(); ++peer) {
      if (peer != rank) all.push_back(peer);
    }
    return all;
  }
  Place sender_of(int32_t rank, size_t at) const {
    return sender_.at({{rank, at}, step(rank, at).peers[0]});
  }
  Place receiver_of(int32_t rank, size_t at, int32_t to) const {
    return receiver_.at({{rank, at}, to});
  }
  int32_t ranks() const { return static_cast<int32_t>(plans_.size()); }
  size_t count(int32_t rank) const { return actions_[rank].size(); }
  int64_t place_of(int32_t rank, Space space, int32_t chunk) const {
    const Plan& plan = plans_[rank];
    return location(plan.collective, plan.program, plan.shape, space, chunk);
  }
  int64_t place_of(int32_t rank, const ChunkRange& chunk) const {
    return place_of(rank, chunk.space, chunk.first);
  }
  bool touches(int32_t rank, const RangeList& ranges, int64_t place) const {
    bool does = false;
    for_each_chunk(
        ranges, [&](Space space, int32_t chunk) { does |= place_of(rank, space, chunk) == place; });
    return does;
  }
  bool writes_before(int32_t rank, size_t end, int64_t place) const {
    for (size_t at = 0; at < end; ++at) {
      if (touches(rank, step(rank, at).dst, place)) return true;
    }
    return false;
  }

 private:
  template <typename Visit>
  void visit(const Visit& visit) const {
    for (int32_t rank = 0; rank < ranks(); ++rank) {
      for (size_t at = 0; at < count(rank); ++at) visit(rank, at);
    }
  }

  std::span<const Plan> plans_;
  std::span<const Actions> actions_;
  std::map<std::pair<Place, int32_t>, Place> sender_;
  std::map<std::pair<Place, int32_t>, Place> receiver_;
};

// Finds the actions by which a rank sums all inputs.
class Sums {
 public:
  Sums(const Calls& calls, int32_t rank) : calls_(calls), rank_(rank) {}

  // Returns one set of actions for each sum; the last action of a set writes the sum.
  std::vector<std::set<size_t>> find() {
    for (size_t at = 0; at < calls_.count(rank_); ++at) {
      if (!calls_.action(rank_, at).from_all) follow(at);
    }
    std::erase_if(complete_, [&](const std::set<size_t>& actions) {
      const Action& last = calls_.action(rank_, *actions.rbegin());
      const bool sends_copy = last.forwards >= 0 && last.lend < 0;
      return sends_copy ||
             std::ranges::any_of(actions, [&](size_t action) { return shared_.contains(action); });
    });
    return complete_;
  }

 private:
  std::optional<Sum> value(const ChunkRange& chunk) const {
    const auto known = values_.find(calls_.place_of(rank_, chunk));
    if (known != values_.end()) return known->second;
    if (chunk.space != Space::input) return std::nullopt;
    return Sum{.chunk = chunk.first, .ranks = {rank_}, .actions = {}};
  }
  std::optional<Sum> value(const RangeList& ranges) const {
    const ChunkRange* const chunk = only_chunk(ranges);
    return chunk != nullptr ? value(*chunk) : std::nullopt;
  }
  // Returns the sum received from a peer if the peer lends its unmodified input, and nullopt
  // otherwise.
  std::optional<Sum> received(size_t at) const {
    if (calls_.action(rank_, at).lender_step < 0) return std::nullopt;
    const auto [peer, sends] = calls_.sender_of(rank_, at);
    const ChunkRange* const chunk = only_chunk(calls_.send_of(peer, sends).src);
    if (chunk == nullptr || chunk->space != Space::input) return std::nullopt;
    if (calls_.writes_before(peer, sends + 1, calls_.place_of(peer, *chunk))) return std::nullopt;
    return Sum{.chunk = chunk->first, .ranks = {peer}, .actions = {at}};
  }

  void follow(size_t at) {
    const Step& step = calls_.step(rank_, at);
    std::optional<Sum> sum;
    switch (step.kind) {
      case StepKind::send:
        return share(step.src);
      case StepKind::recv:
        sum = received(at);
        break;
      case StepKind::recv_reduce:
        sum = together(value(step.src), received(at));
        break;
      case StepKind::reduce:
        sum = together(value(step.src), value(step.src2));
        break;
      case StepKind::copy:
        sum = value(step.src);
        break;
    }
    const ChunkRange* const to = only_chunk(step.dst);
    if (to == nullptr || !sum) {
      share(step.src);
      share(step.src2);
      return forget(step.dst);
    }
    sum->actions.insert(at);
    if (std::cmp_equal(sum->ranks.size(), calls_.ranks()) && to->space == Space::output) {
      complete_.push_back(sum->actions);
      return forget(step.dst);
    }
    values_[calls_.place_of(rank_, *to)] = sum;
    if (calls_.action(rank_, at).forwards >= 0) share(step.dst);
  }
  // Marks the actions whose results other steps also need.
  void share(const RangeList& ranges) {
    for_each_chunk(ranges, [&](Space space, int32_t chunk) {
      const std::optional<Sum> sum = value({space, chunk, 1});
      if (sum) shared_.insert(sum->actions.begin(), sum->actions.end());
    });
  }
  void forget(const RangeList& ranges) {
    for_each_chunk(ranges, [&](Space space, int32_t chunk) {
      values_[calls_.place_of(rank_, space, chunk)] = std::nullopt;
    });
  }

  const Calls& calls_;
  const int32_t rank_;
  std::map<int64_t, std::optional<Sum>> values_;  // by location: written values
  std::set<size_t> shared_;                       // actions whose results other steps need
  std::vector<std::set<size_t>> complete_;
};

// Returns the rank's actions with all actions of a sum replaced by one new action. Other actions
// between the first and the last action of the sum are moved: the sends at their beginning before
// the new action, and the rest behind it. Returns nullopt if the move would change the matching of
// messages or the content of memory.
std::optional<Actions> joined_from_all(const Calls& calls, int32_t rank,
                                       const std::set<size_t>& sum) {
  Actions before;
  Actions after;
  const size_t last = *sum.rbegin();
  Action one = calls.action(rank, last);
  one.from_all = true;
  const RangeList& dst = calls.step(rank, last).dst;
  const int64_t place = calls.place_of(rank, *only_chunk(dst));
  std::set<int32_t> heard;  // ranks whose message for the sum was received
  for (size_t at = 0; at < calls.count(rank); ++at) {
    const Action& action = calls.action(rank, at);
    const Step& step = calls.step(rank, at);
    if (sum.contains(at)) {
      if (receives(step.kind)) heard.insert(step.peers[0]);
      if (action.lender_step >= 0)
        std::tie(one.lender, one.lender_step) = std::tie(action.lender, action.lender_step);
      for (const int32_t lend : action.awaited) one.awaited.push_back(lend);
      continue;
    }
    const bool is_between = at > *sum.begin() && at < last;
    if (is_between &&
        (calls.touches(rank, step.src, place) || calls.touches(rank, step.src2, place) ||
         calls.touches(rank, step.dst, place))) {
      return std::nullopt;
    }
    const bool waits = at > last || (is_between && (step.kind != StepKind::send || !after.empty()));
    if (waits && is_between && receives(step.kind) && !heard.contains(step.peers[0])) {
      return std::nullopt;
    }
    (waits ? after : before).push_back(action);
  }
  before.push_back(one);
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

// Checks that a joint step can write its sum into the outputs of all ranks, because every other
// rank receives the sum into the same chunk.
class ToAll {
 public:
  ToAll(const Calls& calls, int32_t rank, size_t joint)
      : calls_(calls), rank_(rank), joint_(joint), sum_(calls.step(rank, joint).dst) {}

  // Returns the actions that send the sum; empty if the joint step cannot write the sum into all
  // outputs.
  std::vector<size_t> sends() const {
    std::vector<size_t> sends;
    std::set<int32_t> to;
    for (size_t at = joint_; at < calls_.count(rank_); ++at) {
      const Action& action = calls_.action(rank_, at);
      const int32_t peer = action.sends(calls_.step(rank_, at));
      if (peer < 0) continue;
      if (calls_.send_of(rank_, at).src != sum_ || action.lend < 0 || !to.insert(peer).second)
        break;
      if (!may_be_given(calls_.receiver_of(rank_, at, peer))) return {};
      sends.push_back(at);
    }
    return std::cmp_equal(sends.size(), calls_.ranks() - 1) ? sends : std::vector<size_t>();
  }

 private:
  // Returns true if the sum may be written to the receiver's memory once this rank has received the
  // joint step's messages.
  bool may_be_given(const Calls::Place& receiver) const {
    const auto [peer, receives_at] = receiver;
    const Step& step = calls_.step(peer, receives_at);
    if (step.kind != StepKind::recv || step.dst != sum_) return false;
    if (calls_.action(peer, receives_at).forwards >= 0) return false;
    const int64_t place = calls_.place_of(peer, sum_[0]);
    for (size_t at = 0; at < receives_at; ++at) {
      const Step& before = calls_.step(peer, at);
      if (calls_.touches(peer, before.dst, place)) return false;
      const bool reads =
          calls_.touches(peer, before.src, place) || calls_.touches(peer, before.src2, place);
      if (!reads) continue;
      if (before.kind != StepKind::send || calls_.action(peer, at).sends_to != rank_) return false;
      if (calls_.receiver_of(peer, at, rank_).second > joint_) return false;
    }
    return true;
  }

  const Calls& calls_;
  const int32_t rank_;
  const size_t joint_;
  const RangeList& sum_;
};

// Joins the first sum of the rank that can be joined. Returns false if there is none.
bool join_a_sum(std::span<const Plan> plans, std::vector<Actions>& actions, int32_t rank) {
  const Calls calls(plans, actions);
  for (const std::set<size_t>& sum : Sums(calls, rank).find()) {
    std::optional<Actions> joined = joined_from_all(calls, rank, sum);
    if (!joined) continue;
    actions[static_cast<size_t>(rank)] = std::move(*joined);
    return true;
  }
  return false;
}

// Removes actions that were merged into others. The remaining actions no longer wait for readers of
// removed loans.
void drop(Actions& actions, const std::set<size_t>& dropped) {
  Actions kept;
  std::set<int32_t> lends;
  for (size_t at = 0; at < actions.size(); ++at) {
    if (dropped.contains(at)) continue;
    kept.push_back(actions[at]);
    lends.insert(kept.back().lend);
  }
  for (Action& action : kept) {
    std::erase_if(action.awaited, [&](int32_t lend) { return !lends.contains(lend); });
  }
  actions = std::move(kept);
}

void join_results(std::span<const Plan> plans, std::vector<Actions>& actions,
                  bool sums_are_separate) {
  const Calls calls(plans, actions);
  std::vector<Actions> joined = actions;
  std::vector<std::set<size_t>> dropped(plans.size());
  for (int32_t rank = 0; rank < calls.ranks(); ++rank) {
    for (size_t at = 0; at < calls.count(rank); ++at) {
      if (!calls.action(rank, at).from_all) continue;
      Action& one = joined[rank][at];
      const std::vector<size_t> sends = ToAll(calls, rank, at).sends();
      one.by_switch = sums_are_separate || !sends.empty();
      if (sends.empty()) continue;
      one.to_all = true;
      one.lend = one.forwards = one.forwards_to = -1;
      for (const size_t send : sends) {
        const int32_t peer = calls.action(rank, send).sends(calls.step(rank, send));
        Action& given = joined[peer][calls.receiver_of(rank, send, peer).second];
        given.given = true;
        given.awaited.clear();
        if (send != at) dropped[rank].insert(send);
      }
    }
  }
  for (size_t rank = 0; rank < joined.size(); ++rank) drop(joined[rank], dropped[rank]);
  actions = std::move(joined);
}

}  // namespace

std::vector<Actions> join(std::span<const Plan> plans, const std::vector<Actions>& lent,
                          uint32_t room) {
  const Collective collective = plans[0].collective;
  if (collective != Collective::all_reduce && collective != Collective::reduce_scatter) return lent;
  std::vector<Actions> joined = lent;
  for (int32_t rank = 0; std::cmp_less(rank, plans.size()); ++rank) {
    while (join_a_sum(plans, joined, rank)) {
    }
  }
  join_results(plans, joined, collective == Collective::reduce_scatter);
  return ends(plans, joined, room) ? joined : lent;
}

}  // namespace tutti::gpu
