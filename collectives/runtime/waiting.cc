// Waits for a call. If a peer does not make its part of the call, asks the peer for its state, logs
// the missing ranks, and aborts the communicator at the deadline.

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"
#include "collectives/runtime/waiting/backoff.h"
#include "collectives/runtime/waiting/times.h"

namespace tutti::internal {

namespace {

// Returns the call's number in questions to other ranks; 0 for a message, because its number is not
// the same on other ranks.
uint32_t asked_as(const Operation& operation) {
  return operation.point_to_point() ? 0 : operation.number;
}

// Returns `ns`, but at least 2 ms per rank. If all ranks of a large job stall at once, their
// questions and answers pass through the root of the control tree one after another, and must not
// delay the calls themselves.
int64_t at_least_for(int ranks, int64_t ns) {
  constexpr int64_t kEachRankNs = 2'000'000;
  return std::max(ns, ranks * kEachRankNs);
}

Deadline sooner(const Deadline& deadline, std::chrono::milliseconds at_most) {
  return Deadline::after(deadline.remaining(at_most));
}

}  // namespace

WorkState CommunicatorImpl::poll(Operation& operation, StallState& stall) {
  require_own_process();
  operation.awaited.store(true, std::memory_order_relaxed);
  const bool moved = !operation.done.load(std::memory_order_acquire) && progress();
  const bool done = operation.done.load(std::memory_order_acquire);
  // A peer may be blocked in another communicator until this rank makes progress there.
  if (!done && engine_->active().count() > 1) engine_->progress_others(this);
  const bool failed = !done && abort_.raised();
  if (failed) end_by_abort();
  engine_->callbacks().run();
  if (done || failed) return done ? WorkState::complete : WorkState::failed;
  if (moved) {
    end_stall(stall);
  } else {
    check_stall(operation, stall);
  }
  return WorkState::in_flight;
}

std::optional<Error> CommunicatorImpl::error_of(const Operation& operation) const {
  if (operation.done.load(std::memory_order_acquire) || !abort_.raised()) return std::nullopt;
  return abort_.error();
}

bool CommunicatorImpl::wait(Operation& operation, const Deadline& deadline, StallState& stall) {
  constexpr uint32_t kRoundsPerLook = 1024;
  require_own_process();
  operation.awaited.store(true, std::memory_order_relaxed);
  const Engine::Waiting waiting(*engine_);
  Backoff backoff(engine_->oversubscribed(), transport_ && transport_->traits().wakes_slowly,
                  wait_times_);
  for (uint32_t round = 1; !operation.done.load(std::memory_order_acquire); ++round) {
    const bool moved = progress();
    const bool others_moved = engine_->active().count() > 1 && engine_->progress_others(this);
    engine_->callbacks().run();
    if (operation.done.load(std::memory_order_acquire)) break;
    if (abort_.raised()) {
      const Error error = end_by_abort();
      engine_->callbacks().run();
      throw Error(error);
    }
    if (moved) interrupt_stall(stall);
    if (moved || others_moved) {
      backoff.reset();
      if (round % kRoundsPerLook == 0) {
        if (deadline.passed()) return false;
        check_stall(operation, stall);
      }
      continue;
    }
    const bool has_hook = engine_->callbacks().has_hook();
    if (has_hook) engine_->callbacks().call_hook();
    if (!backoff.pause()) {
      if (deadline.passed()) return false;
      check_stall(operation, stall);
      engine_->sleep(this, &operation.done, has_hook ? sooner(deadline, kBetweenHooks) : deadline);
    }
  }
  engine_->callbacks().run();
  end_stall(stall);
  operation.left.store(true, std::memory_order_release);
  return true;
}

// Ends all calls after an abort. Afterwards no thread uses their buffers, which belong to the
// caller again. Returns the abort error.
Error CommunicatorImpl::end_by_abort() {
  {
    const std::unique_lock lock = lock_for_call();
    abandon_calls();
  }
  Error error = abort_.error();
  engine_->note_failure(error);
  return error;
}

void CommunicatorImpl::end_stall(StallState& stall) {
  interrupt_stall(stall);
  // At the next stall the peers may wait for other ranks, so their answers are dropped.
  if (std::exchange(stall.has_asked, false)) stall_.forget_answers();
}

// Ends a stall after progress, but keeps the peers' answers. The progress may only be that a peer
// gave up and closed its connections; if this call then fails before it asks again, these answers
// are the best explanation.
void CommunicatorImpl::interrupt_stall(StallState& stall) {
  const bool has_asked = stall.has_asked || stall.asked_ns != 0;
  if (stall.asked_ns != 0) stall_.stop_waiting();
  stall = {};
  stall.has_asked = has_asked;
}

void CommunicatorImpl::check_stall(Operation& operation, StallState& stall) {
  const int64_t now = now_ns();
  if (stall.since_ns == 0) stall.since_ns = now;
  if (now < stall.next_look_ns) return;
  stall.next_look_ns = now + kLookAgainNs;
  if (operation.timed_out()) {
    time_out(operation);
    return;
  }
  const int64_t waited = now - stall.since_ns;
  const int ranks = engine_->control().size();
  const int64_t ask_after = at_least_for(ranks, kAskAfterNs);
  // Asks early enough to find the late rank before a warning is due.
  if (waited < (late_ns_ == 0 ? ask_after : std::min(ask_after, late_ns_ / 2))) return;
  const int64_t interval = std::min(stall.asked_ns / 2, at_least_for(ranks, kAskAgainNs));
  const bool again = stall.asked_ns == 0 || waited - stall.asked_ns > interval;
  if (stall.asked_ns == 0) stall_.forget_answers();
  if (again) stall.asked_ns = waited;
  note_exchanges(operation);
  stall_.ask(missing(operation), asked_as(operation), again);
  check_answers(operation);
  check_gone(operation);
  if (late_ns_ != 0 && waited > late_ns_) note_lateness(operation, waited);
  if (waited > kSayAfterNs && !stall.reported) {
    stall.reported = true;
    log(LogLevel::warning,
        cat("waiting for ", kSayAfterNs / 1'000'000'000, " s in ",
            to_string(operation.compiled->signature), explain_missing(operation).text));
  }
}

// Returns the ranks that the call waits for. A collective that is queued behind others waits for
// the ranks that the first collective in the queue waits for.
std::vector<int> CommunicatorImpl::missing(const Operation& operation) {
  const std::unique_lock lock = lock_for_call();
  if (operation.done.load() || abort_.raised()) return {};
  std::set<int> peers;
  for (const AwaitedPeer& want : awaited_peers(operation)) peers.insert(want.peer);
  return {peers.begin(), peers.end()};
}

// Returns the peers and lanes that the call (or the collective in progress) waits for. The caller
// holds the mutex.
std::vector<AwaitedPeer> CommunicatorImpl::awaited_peers(const Operation& operation) {
  if (operation.point_to_point()) return messages_.awaited_peers(operation);
  if (collectives_.empty() || !collectives_.front()->started) return {};
  if (!execution_.done()) return execution_.awaited_peers();
  std::vector<AwaitedPeer> awaited_peers;
  for (const int peer : transport_->unsent())
    awaited_peers.push_back({.peer = peer, .sends = true});
  return awaited_peers;
}

// Publishes the messages that this rank has exchanged in the collective in progress. While the rank
// waits for a point-to-point call, it publishes that its exchanges are unknown, because ranks do
// not number those calls alike.
void CommunicatorImpl::note_exchanges(const Operation& operation) {
  uint32_t call = 0;
  std::vector<Exchange> exchanges;
  if (!operation.point_to_point()) {
    const std::unique_lock lock = lock_for_call();
    if (collectives_.empty() || !collectives_.front()->started || abort_.raised()) return;
    if (collectives_.front()->running().plan == nullptr || transport_ == nullptr) return;
    call = collectives_.front()->number;
    exchanges = execution_.exchanges();
  }
  stall_.note_exchanges(call, std::move(exchanges));
}

std::string CommunicatorImpl::on_question(int, uint32_t call) {
  return leaving_.load() ? std::string() : stall_.answer(call);
}

void CommunicatorImpl::on_answer(int world_rank, uint32_t call, std::string_view text) {
  const int peer = member(world_rank);
  if (peer < size()) stall_.note_answer(peer, call, text);
}

// Fails the call if a peer answered that it made the call with other arguments. Such a peer may
// never send the message that would reveal it.
void CommunicatorImpl::check_answers(const Operation& operation) {
  if (operation.point_to_point()) return;
  const Signature& mine = operation.compiled->signature;
  const std::optional<StallWatch::Mismatch> mismatch = stall_.mismatch(operation.number, mine);
  if (mismatch) {
    raise_mismatch(operation.number, mine, mismatch->peer, operation.number, mismatch->signature);
  }
}

// Fails the call if it needs a peer that makes no more calls, because the peer has destroyed its
// communicator or left the job. The peer's last bytes may still be in the network, so a peer counts
// as gone only when they have arrived. If several ranks wait for that peer, the first to detect it
// reports it.
void CommunicatorImpl::check_gone(const Operation& operation) {
  std::map<int, std::string_view> gone;
  for (const int peer : missing(operation)) {
    if (engine_->control().has_left(members_[peer])) gone[peer] = "has left the job";
  }
  for (const int peer : stall_.destroyed()) {
    gone.try_emplace(peer, "has destroyed the communicator");
  }
  if (gone.empty()) return;
  std::optional<int> judged;
  {
    const std::unique_lock lock = lock_for_call();
    if (progress_locked() || operation.done.load() || abort_.raised()) return;
    const bool from_any = operation.point_to_point() && operation.peer() == kAnySource;
    for (const AwaitedPeer& want : awaited_peers(operation)) {
      if (gone.contains(want.peer) && (want.sends || transport_->ended(want.peer, want.lane))) {
        judged = want.peer;
      } else if (from_any) {  // another peer may still send
        return;
      }
    }
  }
  if (judged) raise_gone(operation, *judged, gone.at(*judged));
}

void CommunicatorImpl::raise_gone(const Operation& operation, int peer, std::string_view how) {
  raise_consequence(
      Error(ErrorCode::mismatch,
            cat(describe(peer), " ", how, "; ", describe(rank_), " is still waiting for it in ",
                to_string(operation.compiled->signature)),
            {.cause = "the ranks made different numbers of calls",
             .remedy = "make the same calls in the same order on every rank before "
                       "destroying the communicator",
             .rank = members_[peer]}));
}

void CommunicatorImpl::time_out(const Operation& operation) {
  const StallWatch::Explanation missing = explain_missing(operation);
  raise_everywhere(
      Error(ErrorCode::timeout,
            cat(describe(rank_), " timed out after ",
                std::chrono::duration<double>(operation.timeout).count(), " s in ",
                !operation.point_to_point() ? cat(name_of_call(operation.number), ", ") : "",
                to_string(operation.compiled->signature), missing.text),
            {.cause = "a rank is stuck or slow, or makes different calls",
             .remedy = "check the ranks named above; TUTTI_TIMEOUT sets the limit in seconds",
             .rank = missing.culprit}));
}

// Lists unclaimed messages: one of them may be the awaited message with a wrong tag.
std::string CommunicatorImpl::explain_unclaimed() {
  const std::unique_lock lock = lock_for_call();
  std::string text;
  for (const auto& [message, own] : messages_.unclaimed()) {
    if (own) {
      text += cat("; ", describe(message.source),
                  " is creating a communicator with other members or another tag");
      continue;
    }
    text += cat("; ", describe(message.source), " has sent ", message.count, ' ',
                name(message.dtype), ", tag ", message.tag, ", which no receive matches");
  }
  return text;
}

StallWatch::Explanation CommunicatorImpl::explain_missing(const Operation& operation) {
  const bool point_to_point = operation.point_to_point();
  StallWatch::Explanation missing = stall_.explain(this->missing(operation), point_to_point);
  if (point_to_point) missing.text = explain_unclaimed() + missing.text;
  return missing;
}

}  // namespace tutti::internal
