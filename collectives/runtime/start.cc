// Compiles calls, and starts them as operations.

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/reduce.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"

namespace tutti::internal {

namespace {

// Throws the error. It is separate from the check, which is on every call's path.
[[noreturn, gnu::noinline]] void refuse_timeout(std::chrono::nanoseconds timeout) {
  throw Error(ErrorCode::invalid_argument,
              cat("a timeout of ", timeout.count(), " ns is negative"));
}

[[noreturn]] void refuse_shorter_message() {
  throw Error(ErrorCode::unsupported,
              "a receive with may_be_shorter supports neither a reduction nor a wire format",
              {.cause = "blocks do not say how many elements they contain",
               .remedy = "receive exactly as many elements as are sent"});
}

}  // namespace

// Ends a call into this communicator: runs the callbacks of calls that it has completed.
inline void CommunicatorImpl::release(std::unique_lock<std::mutex>& lock) {
  if (lock) lock.unlock();
  engine_->callbacks().run();
}

inline void CommunicatorImpl::plan(const Request& request, const CallOptions& options,
                                   Operation& operation) {
  if (options.timeout && options.timeout->count() < 0) refuse_timeout(*options.timeout);
  operation.timeout = options.timeout.value_or(timeout_);
  if (options.wire != WireFormat::plain || request.combines) {
    return plan_encoded(request, options, operation);
  }
  if (operation.encoded) operation.encoded.reset();
  operation.compiled = compiler_.compiled(request, options);
  operation.input = static_cast<const std::byte*>(request.input.data);
  operation.output = static_cast<std::byte*>(request.output.data);
}

void CommunicatorImpl::plan_encoded(const Request& request, const CallOptions& options,
                                    Operation& operation) {
  Request whole = request;
  tutti::complete(whole, rank_, size());
  CallOptions plain = options;
  plain.wire = WireFormat::plain;
  const bool is_plain = options.wire == WireFormat::plain && !whole.combines;
  if (is_plain || whole.collective == Collective::barrier) return plan(whole, plain, operation);
  if (options.may_be_shorter) refuse_shorter_message();
  operation.encoded = std::make_shared<const EncodedCall>(whole, options.wire, rank_, size());
  const Request& encoded = operation.encoded->request();
  operation.compiled = compiler_.compiled(encoded, plain);
  operation.input = static_cast<const std::byte*>(encoded.input.data);
  operation.output = static_cast<std::byte*>(encoded.output.data);
}

std::shared_ptr<const Operation> CommunicatorImpl::prepare(const Request& request,
                                                           const CallOptions& options) {
  require_own_process();
  if (!options.after.empty()) {
    throw Error(ErrorCode::invalid_argument, "prepare: a prepared call cannot follow other works",
                {.remedy = "use CallOptions::after only for calls that start immediately"});
  }
  const std::unique_lock lock = lock_for_call();
  auto prepared = std::make_shared<Operation>();
  plan(request, options, *prepared);
  return prepared;
}

// Makes the next call wait for the calls in `works` that are not complete yet.
void CommunicatorImpl::follow(std::span<const Work> works) {
  std::vector<std::shared_ptr<Operation>> found;
  for (const Work& work : works) {
    if (work.operation_ && !work.operation_->done.load(std::memory_order_acquire)) {
      work.operation_->awaited.store(true, std::memory_order_relaxed);
      found.push_back(work.operation_);
    }
  }
  if (!found.empty()) following_ = std::make_unique<Predecessors::element_type>(std::move(found));
}

std::shared_ptr<Operation> CommunicatorImpl::start(const Request& request,
                                                   const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  std::shared_ptr<Operation> operation = set_off(start_locked(request, options));
  release(lock);
  return operation;
}

std::shared_ptr<Operation> CommunicatorImpl::start(const Operation& prepared) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  std::shared_ptr<Operation> operation = set_off(start_locked(prepared));
  release(lock);
  return operation;
}

void CommunicatorImpl::run(const Request& request, const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  finish(start_locked(request, options), lock);
  release(lock);
}

void CommunicatorImpl::run(const Operation& prepared) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  finish(start_locked(prepared), lock);
  release(lock);
}

// Sends as much of the call's data as possible, before control returns to the caller.
std::shared_ptr<Operation> CommunicatorImpl::set_off(const std::shared_ptr<Operation>& operation) {
  if (operation == nullptr || operation->done.load(std::memory_order_relaxed)) return operation;
  announce(*operation);
  progress_locked();
  return operation;
}

// Completes a call that the caller waits for. First sends as much as possible, and records the
// start while messages are in flight. Holds the lock for some rounds of polling, because most calls
// complete within them, then releases it for other threads.
void CommunicatorImpl::finish(const std::shared_ptr<Operation>& operation,
                              std::unique_lock<std::mutex>& lock) {
  if (operation == nullptr) return;
  constexpr int kRounds = 300;
  progress_locked();
  record_start(*operation);
  if (operation->done.load(std::memory_order_relaxed)) return record_end(*operation);
  if (!engine_->oversubscribed()) {
    for (int round = 0; round < kRounds && engine_->active().count() == 0 && callers_.load() == 0;
         ++round) {
      progress_locked();
      if (operation->done.load(std::memory_order_relaxed)) return;
    }
  }
  announce(*operation);
  // `operation` is in the pool's vector, which other calls may reallocate.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::shared_ptr<Operation> handle = operation;
  lock.unlock();
  StallState stall;
  wait(*handle, Deadline::never(), stall);
}

// Counts the operation as in flight, for other threads and communicators. Does not count it after
// an abort, because the abort ends the operation.
void CommunicatorImpl::announce(Operation& operation) {
  if (operation.begun == 0) record_start(operation);
  if (!abort_.raised()) operation.active.begin(engine_->active());
}

void CommunicatorImpl::record_start(Operation& operation) {
  operation.begun = ticks();
  tally_.add_call(operation.compiled->signature_bytes);
  if (operation.point_to_point()) return;
  recorder_.started(operation.number, operation.compiled->signature_words, operation.begun);
}

// Records the end of a call. The clock is not read for a brief call that no thread had to wait for.
void CommunicatorImpl::record_end(const Operation& operation) {
  if (operation.point_to_point()) return;
  const bool soon = operation.compiled->brief && !operation.active.begun();
  recorder_.finished(operation.number, soon ? operation.begun : ticks());
}

// Runs the call of a single rank synchronously.
void CommunicatorImpl::run_alone(const Operation& operation) {
  const CompiledCall& compiled = *operation.compiled;
  const Collective collective = compiled.signature.collective;
  if (collective == Collective::barrier || collective == Collective::exscan) return;
  const auto start = [&](const Blocks& blocks) {
    return blocks.empty() ? 0 : blocks.displacements[0] * compiled.element_bytes;
  };
  const std::byte* const input = operation.input + start(compiled.input_blocks);
  std::byte* const output = operation.output + start(compiled.output_blocks);
  const uint64_t count =
      compiled.input_blocks.empty() ? compiled.input_count : compiled.input_blocks.counts[0];
  if (compiled.reduction.op == ReduceOp::premul_sum) {
    scale(output, input, count, compiled.dtype, compiled.reduction.factor);
  } else if (output != input && count > 0) {
    std::memmove(output, input, count * compiled.element_bytes);
  }
}

const std::shared_ptr<Operation>& CommunicatorImpl::start_locked(const Request& request,
                                                                 const CallOptions& options) {
  const std::shared_ptr<Operation>& operation = pool_.take();
  plan(request, options, *operation);
  if (!options.after.empty()) follow(options.after);
  return queue(operation);
}

const std::shared_ptr<Operation>& CommunicatorImpl::start_locked(const Operation& prepared) {
  const std::shared_ptr<Operation>& operation = pool_.take();
  operation->compiled = prepared.compiled;
  operation->input = prepared.input;
  operation->output = prepared.output;
  operation->timeout = prepared.timeout;
  operation->encoded = prepared.encoded;
  return queue(operation);
}

// Adds the operation to its queue. A collective of a single rank without predecessors runs at once
// instead. In that case returns null, and the pool reuses the operation.
const std::shared_ptr<Operation>& CommunicatorImpl::queue(
    const std::shared_ptr<Operation>& operation) {
  const CompiledCall& compiled = *operation->compiled;
  if (compiled.plan == nullptr && !compiled.point_to_point() && !following_) {
    static const std::shared_ptr<Operation> nothing;
    operation->encode();
    run_alone(*operation);
    operation->decode();
    return nothing;
  }
  operation->begin();
  if (following_) operation->after = std::move(following_);
  if (!compiled.point_to_point()) {
    if (++calls_made_ == 0) calls_made_ = 1;  // 0 means that there is no call
    operation->number = calls_made_;
    collectives_.push_back(*operation);
  } else if (compiled.sends) {
    messages_.send(*operation);
  } else {
    messages_.receive(*operation);
  }
  return operation;
}

// ---- messages

MessageInfo CommunicatorImpl::receive(const Request& request, const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  const std::shared_ptr<Operation> operation = start_locked(request, options);
  finish(operation, lock);
  const MessageInfo received = operation->received;
  operation->left.store(true, std::memory_order_release);
  release(lock);
  return received;
}

const std::shared_ptr<Operation>& CommunicatorImpl::start_probe(int source, int tag) {
  const std::shared_ptr<Operation>& operation = pool_.take();
  plan(Request::recv({}, source), {.tag = tag}, *operation);
  operation->probes = true;
  return queue(operation);
}

MessageInfo CommunicatorImpl::await_message(int source, int tag) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  const std::shared_ptr<Operation> operation = start_probe(source, tag);
  finish(operation, lock);
  release(lock);
  return operation->received;
}

std::optional<MessageInfo> CommunicatorImpl::probe(int source, int tag) {
  require_own_process();
  abort_.throw_if_raised();
  std::unique_lock lock = lock_for_call();
  const std::shared_ptr<Operation>& operation = start_probe(source, tag);
  operation->awaited.store(true, std::memory_order_relaxed);
  progress_locked();
  abort_.throw_if_raised();
  std::optional<MessageInfo> found;
  if (operation->done.load(std::memory_order_relaxed)) {
    found = operation->received;
  } else {
    messages_.withdraw(*operation);
  }
  release(lock);
  return found;
}

}  // namespace tutti::internal
