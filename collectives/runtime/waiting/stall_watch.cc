#include "collectives/runtime/waiting/stall_watch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"

namespace tutti::internal {
namespace {

struct Answer {  // format of an answer in the control channel
  uint32_t last_call = 0;
  uint32_t made_call = 0;
  std::array<uint64_t, 2> signature = {};
  std::array<int32_t, 4> waits_for = {-1, -1, -1, -1};  // the first few ranks
  uint32_t current_call = 0;
  uint32_t waits_in = 0;
  uint32_t listed = 0;  // number of all exchanges; `exchanges` has only the first ones
  std::array<Exchange, 32> exchanges = {};
};

// Returns true if `call` was made before `other`. Numbers of calls wrap around.
bool is_before(uint32_t call, uint32_t other) { return static_cast<int32_t>(other - call) > 0; }

}  // namespace

int StallWatch::member(int job_rank) const {
  return static_cast<int>(std::ranges::find(members_, job_rank) - members_.begin());
}

void StallWatch::ask(std::vector<int> missing, uint32_t call, bool again) {
  const std::lock_guard lock(mutex_);
  if (call != asked_call_) answers_.clear();
  if (again || call != asked_call_) asked_.clear();
  asked_call_ = call;
  waits_for_ = missing;
  std::vector<int>& peers = missing;
  // All questions of a job pass through the root of the control tree. In a large job, each rank
  // therefore asks only the first ranks of the chain of waiting ranks.
  constexpr size_t kMostOfAllRanks = 32'768;
  const size_t most_followed = std::max<size_t>(8, kMostOfAllRanks / members_.size());
  const size_t most = missing.size() + most_followed;
  for (const auto& [peer, state] : answers_) {
    if (asked_.size() >= most || peers.size() >= most) break;
    peers.insert(peers.end(), state.waits_for.begin(), state.waits_for.end());
  }
  for (const int peer : std::vector<int>(peers)) {
    if (peer == rank_) continue;
    const int on_the_way = member(channel_.way_to(peer));
    if (on_the_way < size()) peers.push_back(on_the_way);
  }
  for (const int peer : peers) {
    if (peer != rank_ && asked_.insert(peer).second) channel_.ask(peer, call);
  }
}

void StallWatch::note_answer(int peer, uint32_t call, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (call != asked_call_) return;
  PeerState& state = answers_[peer];
  Answer answer;
  if (text.size() != sizeof(answer)) {
    state.destroyed = text.empty();
    return;
  }
  std::memcpy(&answer, text.data(), sizeof(answer));
  state = {
      .made_call = answer.made_call != 0,
      .last_call = answer.last_call,
      .progress = {.current = answer.current_call,
                   .last_call = answer.last_call,
                   .waits_in = answer.waits_in,
                   .lists_all = answer.listed <= answer.exchanges.size(),
                   .exchanges = {answer.exchanges.begin(),
                                 answer.exchanges.begin() +
                                     std::min<size_t>(answer.listed, answer.exchanges.size())}},
      .signature = decode(answer.signature),
      .waits_for = {},
      .destroyed = false};
  for (const int32_t next : answer.waits_for) {
    if (next >= 0 && next < size()) state.waits_for.push_back(next);
  }
}

void StallWatch::note_exchanges(uint32_t call, std::vector<Exchange> exchanges) {
  // Exchanges with peers that the rank waits for come first, because an answer has room for only a
  // few.
  std::ranges::stable_partition(exchanges,
                                [](const Exchange& its) { return its.to_receive || its.to_send; });
  const std::lock_guard lock(mutex_);
  waits_in_ = call;
  exchanges_ = std::move(exchanges);
}

void StallWatch::stop_waiting() {
  const std::lock_guard lock(mutex_);
  waits_for_.clear();
  waits_in_ = 0;
  exchanges_.clear();
  asked_.clear();
}

void StallWatch::forget_answers() {
  const std::lock_guard lock(mutex_);
  answers_.clear();
}

std::optional<StallWatch::Mismatch> StallWatch::mismatch(uint32_t call,
                                                         const Signature& mine) const {
  const std::lock_guard lock(mutex_);
  if (call != asked_call_) return {};
  for (const auto& [peer, state] : answers_) {
    if (state.made_call && !(state.signature == mine)) return Mismatch{peer, state.signature};
  }
  return {};
}

std::set<int> StallWatch::destroyed() const {
  const std::lock_guard lock(mutex_);
  std::set<int> peers;
  for (const auto& [peer, state] : answers_) {
    if (state.destroyed) peers.insert(peer);
  }
  return peers;
}

bool StallWatch::Progress::has_finished(uint32_t call) const {
  return current != 0 ? is_before(call, current) : last_call != 0 && !is_before(last_call, call);
}

const Exchange* StallWatch::Progress::with(int peer, int lane) const {
  static constexpr Exchange kNothing;
  const auto found = std::ranges::find_if(
      exchanges, [&](const Exchange& its) { return its.peer == peer && its.lane == lane; });
  if (found != exchanges.end()) return &*found;
  return lists_all ? &kNothing : nullptr;
}

StallWatch::Progress StallWatch::own_progress() const {
  const std::optional<CallRecord> current = recorder_.current();
  return {.current = current ? current->call : 0,
          .last_call = recorder_.last_started(),
          .waits_in = waits_in_,
          .exchanges = exchanges_};
}

std::optional<StallWatch::Progress> StallWatch::progress_of(int rank) const {
  if (rank == rank_) return own_progress();
  const auto answer = answers_.find(rank);
  if (answer == answers_.end() || answer->second.destroyed) return {};
  return answer->second.progress;
}

// Returns the reason why the rank could proceed, found from the counts of messages exchanged.
// Returns an empty text if the rank has to wait, or if the counts do not show it. A send has to
// wait if one of the peers that the rank sends to has not taken all messages.
std::string StallWatch::why_stuck(int rank) const {
  const std::optional<Progress> mine = progress_of(rank);
  if (!mine || mine->waits_in == 0) return {};
  const std::string self = describe_member(rank);
  std::string sends;
  bool may_not_send = false;
  for (const Exchange& its : mine->exchanges) {
    if (!its.to_receive && !its.to_send) continue;
    const std::optional<Progress> theirs = progress_of(its.peer);
    if (!theirs) {
      may_not_send |= its.to_send;
      continue;
    }
    const std::string peer = describe_member(its.peer);
    if (theirs->has_finished(mine->waits_in)) {
      const std::string why =
          cat(self, " is still in call ", mine->waits_in, ", which ", peer, " has finished");
      if (its.to_receive) return why;
      sends = why;  // another reader of the same message may be the one that is late
      continue;
    }
    const Exchange* const other =
        theirs->waits_in == mine->waits_in ? theirs->with(rank, its.lane) : nullptr;
    if (other == nullptr || its.has_unsent || other->has_unsent) {
      may_not_send |= its.to_send;
      continue;
    }
    if (its.to_receive && is_before(its.received, other->sent)) {
      return cat(self, " has not taken the message that ", peer, " has sent it");
    }
    if (!its.to_send) continue;
    if (other->received != its.sent) {
      may_not_send = true;
    } else {
      sends = cat(self, " sends nothing to ", peer, ", which has taken all messages");
    }
  }
  return may_not_send ? std::string() : sends;
}

// Explains the stall. The culprit is a rank that could proceed, if there is one. Otherwise it is
// the last rank of the chain. But if neither that rank nor the rank that forwards questions to it
// answers, the forwarding rank is the culprit.
StallWatch::Explanation StallWatch::explain(std::vector<int> missing, bool point_to_point) const {
  Explanation found;
  std::vector<int>& chain = missing;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < chain.size(); ++i) {
    if (chain[i] == rank_) {
      found.text += "; waiting for a message to itself that it has not sent";
      continue;
    }
    const int job_rank = members_[static_cast<size_t>(chain[i])];
    found.text += cat("; waiting for ", channel_.describe(job_rank));
    found.culprit = job_rank;
    const auto answer = answers_.find(chain[i]);
    if (answer == answers_.end()) {
      const int way = channel_.way_to(chain[i]);
      const bool way_is_open = way == job_rank || answers_.contains(member(way));
      if (!way_is_open) found.culprit = way;
      found.text += way_is_open ? ", which does not answer"
                                : cat(", which is reached through ", channel_.describe(way),
                                      ", which does not answer");
      continue;
    }
    found.text += describe(answer->second, point_to_point);
    for (const int next : answer->second.waits_for) {
      if (next != rank_ && std::ranges::find(chain, next) == chain.end()) chain.push_back(next);
    }
  }
  if (point_to_point || chain.empty()) return found;
  chain.push_back(rank_);
  for (const int rank : chain) {
    const std::string why = why_stuck(rank);
    if (why.empty()) continue;
    found.text += cat("; ", why, ": it has stalled, or the connection between the two");
    found.culprit = members_[static_cast<size_t>(rank)];
    break;
  }
  return found;
}

std::string StallWatch::describe(const PeerState& peer, bool point_to_point) const {
  std::string text;
  if (point_to_point) {  // these calls have no numbers
    if (peer.waits_for.empty()) text = ", which waits for no rank";
  } else if (peer.last_call == 0) {
    text = ", which has made no call yet";
  } else {
    text = cat(", which is at call ", peer.last_call);
    if (peer.made_call) text += cat(", ", to_string(peer.signature));
  }
  if (!peer.waits_for.empty()) {
    text +=
        cat(point_to_point ? ", which" : ", and", " waits for rank ", rank_ranges(peer.waits_for));
  }
  return text;
}

std::string StallWatch::answer(uint32_t call) const {
  Answer answer{.last_call = recorder_.last_started()};
  const uint32_t wanted = call != 0 ? call : answer.last_call;
  if (const std::optional<CallRecord> record = recorder_.find(wanted)) {
    answer.made_call = 1;
    answer.signature = encode(record->signature);
  }
  const std::optional<CallRecord> last = recorder_.find(answer.last_call);
  if (call == 0 || (last && !last->finished)) {  // 0: the question is from a point-to-point call
    const std::vector<int> waits_for = this->waits_for();
    std::copy_n(waits_for.begin(), std::min(waits_for.size(), answer.waits_for.size()),
                answer.waits_for.begin());
  }
  const std::lock_guard lock(mutex_);
  const Progress own = own_progress();
  answer.current_call = own.current;
  answer.waits_in = own.waits_in;
  answer.listed = static_cast<uint32_t>(own.exchanges.size());
  std::copy_n(own.exchanges.begin(), std::min(own.exchanges.size(), answer.exchanges.size()),
              answer.exchanges.begin());
  return {reinterpret_cast<const char*>(&answer), sizeof(answer)};
}

std::vector<int> StallWatch::waits_for() const {
  const std::lock_guard lock(mutex_);
  return waits_for_;
}

bool StallWatch::knows_late(uint32_t call) const {
  const std::lock_guard lock(mutex_);
  return lateness_.knows(call);
}

std::optional<uint32_t> StallWatch::note_late(uint32_t call, int job_rank) {
  const std::lock_guard lock(mutex_);
  const uint32_t calls = lateness_.note(call, job_rank);
  if (!lateness_.is_news()) return {};
  return calls;
}

}  // namespace tutti::internal
