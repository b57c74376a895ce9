#include "collectives/runtime/communicator_impl.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/runtime/device/device_routes.h"

namespace tutti::internal {

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Engine> engine, uint64_t id,
                                   std::vector<int> members, int rank, uint64_t epoch,
                                   Origin origin)
    : engine_(std::move(engine)),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      epoch_(epoch),
      origin_(origin),
      timeout_(settings().get_duration("TUTTI_TIMEOUT")),
      late_ns_(settings().get_duration("TUTTI_LATE_WARNING").count()),
      stall_(rank_, members_, recorder_, stall_channel()),
      tally_(size()),
      devices_([this](int device) { return make_device_routes(device); }),
      survivors_(engine_, maker(engine_), id_, members_, epoch_, timeout_),
      calls_made_(static_cast<uint32_t>(settings().get_int("TUTTI_FIRST_CALL") - 1)),
      messages_(rank_, size(), settings().get_bytes("TUTTI_UNEXPECTED_BYTES"), owner_of_messages()),
      compiler_(rank_, size(),
                [this](int peer, bool sends) { return messages_.plan(peer, sends); }) {
  // The client is attached first, so that deaths and aborts end the waits for the other members. If
  // this constructor fails, it aborts the communicator on the other members.
  engine_->control().attach(id_, members_, this);
  try {
    open_transport();
    if (paths_) paths_->wait_for_host();
  } catch (const Error& error) {
    engine_->control().poison(id_, abort_.raised() ? abort_.error() : error);
    close_transport();
    throw;
  } catch (...) {
    close_transport();
    throw;
  }
  engine_->add(this);
}

CommunicatorImpl::~CommunicatorImpl() {
  if (engine_->control().forked()) return;  // the parent owns everything
  // During stack unwinding, report to the other ranks that this rank failed, not that it left.
  if (std::uncaught_exceptions() > exceptions_ && !abort_.raised()) {
    const std::string why = engine_->last_failure();
    raise_consequence(
        Error(ErrorCode::aborted, cat(describe(rank_), " failed and left the communicator"),
              {.cause = why.empty() ? "an error on that rank, which its output shows" : why,
               .rank = members_[rank_]}));
  }
  if (survivors_.grow_failed()) engine_->spares().abandon();
  close_queues();
  devices_.leave([this] { return meet_all(); });
  engine_->remove(this);
  lock_for_call();  // wakes a thread that sleeps with mutex_ locked, and waits for it
  close_transport();
  abandon_calls();
  engine_->callbacks().run();
}

Membership CommunicatorImpl::membership() const {
  const std::vector<uint64_t> words(members_.begin(), members_.end());
  return {.epoch = epoch_, .digest = fnv_of_words(words)};
}

Agreement CommunicatorImpl::agree(uint64_t flags) {
  const Agreed agreed = survivors().agree(flags);
  Agreement agreement{.flags = agreed.flags, .living = {}};
  for (const int rank : agreed.living) agreement.living.push_back(member(rank));
  return agreement;
}

// ---- calls

// Throws in a forked child. The child has only a copy of the communicator, and the counters of the
// copy would conflict with those of the parent.
void CommunicatorImpl::require_own_process() const {
  if (engine_->control().forked()) refuse_forked_child();
}

// Throws the error. It is separate from the check, which is on every call's path.
void CommunicatorImpl::refuse_forked_child() const {
  throw Error(ErrorCode::unsupported,
              cat(describe(rank_), ": the communicator was created before fork()"),
              {.remedy = "use it in the parent only, or exec() a new program"});
}

// Locks the mutex. A thread that sleeps in the transport holds it; that thread is woken to admit a
// new call.
std::unique_lock<std::mutex> CommunicatorImpl::lock_for_call() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  callers_.fetch_add(1);
  engine_->wake();
  lock.lock();
  callers_.fetch_sub(1);
  return lock;
}

// ---- progress

bool CommunicatorImpl::progress() {
  const std::unique_lock lock = try_lock();
  return lock && progress_locked();
}

bool CommunicatorImpl::progress_locked() {
  if (abort_.raised()) {
    abandon_calls();
    return false;
  }
  bool moved = transport_ && transport_->progress();
  while (!collectives_.empty() && !abort_.raised()) {
    Operation& operation = *collectives_.front();
    if (operation.after && !may_start(operation)) break;
    moved |= advance(operation, execution_);
    if (!execution_.done() || (transport_ && !transport_->collectives_sent())) break;
    collectives_.pop_front();
    complete(operation);
    moved = true;
  }
  if (messages_.in_flight() > 0) moved |= messages_.progress();
  return moved;
}

// Returns true if the call's predecessors (CallOptions::after) are complete. Aborts the
// communicator if one of them has failed.
bool CommunicatorImpl::may_start(Operation& operation) {
  for (const std::shared_ptr<Operation>& before : *operation.after) {
    if (before->done.load(std::memory_order_acquire)) continue;
    if (before->failed.load(std::memory_order_acquire)) {
      raise_consequence(
          Error(ErrorCode::aborted,
                cat(describe(rank_), ": a call that ", to_string(operation.compiled->signature),
                    " depends on has failed"),
                {.cause = before->failure->what(), .rank = members_[rank_]}));
    }
    return false;
  }
  operation.after.reset();
  return true;
}

bool CommunicatorImpl::advance(Operation& operation, Execution& execution) {
  if (!operation.started) {
    const CompiledCall& compiled = *operation.compiled;
    operation.encode();
    if (compiled.plan == nullptr) {
      run_alone(operation);
    } else {
      execution.start(operation, transport_, tally_.received());
    }
    operation.started = true;
  }
  const bool moved = execution.progress();
  if (execution.unexpected()) report_unexpected(operation, *execution.unexpected());
  return moved;
}

// Ends all calls, after an abort or on destruction. Afterwards, nothing progresses, and peers no
// longer read lent memory.
void CommunicatorImpl::abandon_calls() {
  if (transport_) transport_->revoke();
  while (Operation* const operation = collectives_.pop_front()) abandon(*operation);
  messages_.abandon();
}

void CommunicatorImpl::complete(Operation& operation) {
  if (operation.begun != 0) record_end(operation);
  operation.active.end();
  operation.decode();
  operation.done.store(true, std::memory_order_release);
  if (operation.on_end) call_back(operation, std::nullopt);
}

// Queues the callback. It is separate from the check, which is on every call's path.
void CommunicatorImpl::call_back(Operation& operation, const std::optional<Error>& error) {
  engine_->callbacks().add([callback = std::exchange(operation.on_end, nullptr), error] {
    callback(error ? &*error : nullptr);
  });
  engine_->active().ring();  // the progress thread sleeps if this was the last call in flight
}

void CommunicatorImpl::abandon(Operation& operation) {
  operation.active.end();
  operation.after.reset();
  if (!operation.failed.load(std::memory_order_relaxed)) {
    // Without an abort, the communicator is being destroyed while the call is in flight.
    operation.failure = abort_.raised() ? abort_.error()
                                        : Error(ErrorCode::aborted,
                                                cat(describe(rank_), " has destroyed the ",
                                                    "communicator with a call in flight"),
                                                {.rank = members_[rank_]});
    operation.failed.store(true, std::memory_order_release);
  }
  if (operation.on_end) call_back(operation, operation.failure);
}

void CommunicatorImpl::on_end(Operation& operation, std::function<void(const Error*)> callback) {
  {
    const std::unique_lock lock = lock_for_call();
    if (!operation.done.load(std::memory_order_relaxed)) {
      operation.awaited.store(true, std::memory_order_relaxed);
      operation.on_end = std::move(callback);
      if (abort_.raised()) abandon(operation);
    } else {
      engine_->callbacks().add([callback = std::move(callback)] { callback(nullptr); });
    }
  }
  engine_->callbacks().run();
}

void CommunicatorImpl::while_waiting(std::function<void()> hook) {
  engine_->callbacks().while_waiting(std::move(hook));
}

// ---- failure

void CommunicatorImpl::raise_everywhere(const Error& error) {
  engine_->control().poison(id_, error);
  on_abort(error);
  if (origin_.is_part) origin_.parent->raise_everywhere(error);
  fail_queues(error);
}

// Aborts the communicator on all ranks with `error`. If ranks have died, it reports their deaths
// instead, because `error` is then a consequence of the deaths, and the rank that it names is not
// to blame.
void CommunicatorImpl::raise_consequence(const Error& error) {
  raise_everywhere(engine_->control().deaths().value_or(error));
}

void CommunicatorImpl::abort(const std::string& reason) {
  const std::string why = engine_->last_failure();
  const bool is_named = reason.find(why) != std::string::npos;
  raise_consequence(Error(ErrorCode::aborted, cat(describe(rank_), " aborted: ", reason),
                          {.cause = is_named ? "" : why, .rank = members_[rank_]}));
}

void CommunicatorImpl::on_abort(const Error& error) {
  {
    const ExitWaits until_it_is_written;  // a caller may exit as soon as it sees the error
    if (abort_.raise(error)) {
      log_last_calls(error.code());
      write_report(error);
    }
  }
  devices_.stop(error);
}

// Logs this rank's last calls after a mismatch or timeout, and the call in progress after a death
// or a lost connection. After other errors, this rank's calls would not help.
void CommunicatorImpl::log_last_calls(ErrorCode code) const {
  constexpr size_t kCallsShown = 4;
  const std::optional<CallRecord> last = recorder_.find(recorder_.last_started());
  if (!last) return;
  const std::string what = cat("communicator aborted on ", describe(rank_));
  if (code == ErrorCode::mismatch || code == ErrorCode::timeout) {
    log(LogLevel::warning, cat(what, "; its last calls were:", recorder_.history(kCallsShown)));
  } else if ((code == ErrorCode::rank_died || code == ErrorCode::connection_lost) &&
             !last->finished) {
    log(LogLevel::warning, cat(what, " in call ", last->call, ", ", to_string(last->signature)));
  }
}

void CommunicatorImpl::report_unexpected(const Operation& operation, const Unexpected& message) {
  const Signature& mine = operation.compiled->signature;
  const Signature theirs = decode(message.header.signature);
  if (message.header.call == operation.number && theirs == message.expected) {
    raise_everywhere(Error(
        ErrorCode::connection_lost,
        cat(describe(message.peer), " sent ", message.header.bytes, " bytes for slice ",
            message.header.slice, " of call ", operation.number, " (", to_string(mine), ") where ",
            describe(rank_), " expected ", message.bytes, " bytes for slice ", message.slice),
        {.cause = "the message was truncated or damaged in transit",
         .rank = members_[message.peer]}));
    return;
  }
  raise_mismatch(operation.number, message.expected, message.peer, message.header.call, theirs);
}

void CommunicatorImpl::raise_mismatch(uint32_t call, const Signature& mine, int peer,
                                      uint32_t their_call, const Signature& theirs) {
  const std::string_view kind =
      mine.collective == Collective::send_recv && theirs.collective == Collective::send_recv
          ? "message"
          : "collective";
  raise_everywhere(Error(
      ErrorCode::mismatch,
      call == their_call
          ? cat(kind, " mismatch at ", name_of_call(call), ": ", describe(rank_), " called ",
                to_string(mine), ", but ", describe(peer), " called ", to_string(theirs))
          : cat(kind, " mismatch: ", describe(rank_), " called ", to_string(mine), " as ",
                name_of_call(call), ", but ", describe(peer), " called ", to_string(theirs), " as ",
                name_of_call(their_call)),
      {.cause = call == their_call
                    ? "the ranks passed different arguments"
                    : "one rank skipped a call, or the ranks made calls in different orders",
       .remedy = "make the same calls with the same arguments in the same order on every rank",
       .rank = members_[peer]}));
}

}  // namespace tutti::internal
