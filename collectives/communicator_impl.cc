#include "collectives/communicator_impl.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/planner.h"

namespace tutti::internal {

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Engine> engine, uint64_t id,
                                   std::vector<int> members, int rank)
    : engine_(std::move(engine)),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      all_reduce_setting_(settings().get_string("TUTTI_ALGORITHM")),
      timeout_(static_cast<int64_t>(settings().get_seconds("TUTTI_TIMEOUT") * 1e9)),
      sends_(members_.size()),
      recvs_(members_.size()) {
  try {
    open_transport();
    engine_->control().attach(id_, members_, this);
    wait_for_local_ranks();
  } catch (...) {
    close_transport();
    throw;
  }
  engine_->add(this);
}

CommunicatorImpl::~CommunicatorImpl() {
  if (engine_->control().forked()) return;  // all of it is the parent's
  // Unwound by an exception: the others are told that this rank failed, not that it left.
  if (std::uncaught_exceptions() > exceptions_ && !abort_.raised()) {
    raise_everywhere(Error(ErrorCode::aborted, cat(describe(rank_), " failed and gave up"),
                           {.cause = "an error of its own: see what it says"}));
  }
  engine_->remove(this);
  close_transport();
  abandon_calls();
}

// ---- calls

// What a forked child has of a communicator is a copy; its counters would fight the parent's.
void CommunicatorImpl::require_own_process() const {
  if (!engine_->control().forked()) return;
  throw Error(ErrorCode::unsupported,
              cat(describe(rank_), ": the communicator was made before fork()"),
              {.remedy = "use it in the parent only, or exec() a new program"});
}

// While a thread sleeps in the transport it holds the mutex: it is woken to let a new call in.
std::unique_lock<std::mutex> CommunicatorImpl::lock_for_call() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  callers_.fetch_add(1);
  if (transport_) transport_->wake();
  lock.lock();
  callers_.fetch_sub(1);
  return lock;
}

// Operations are reused, so that a call allocates nothing once the communicator is warm.
std::shared_ptr<Operation> CommunicatorImpl::take_operation() {
  constexpr size_t kPool = 32;
  for (const std::shared_ptr<Operation>& operation : pool_) {
    if (operation.use_count() == 1) {
      // Whoever dropped its handle last is done with it.
      std::atomic_thread_fence(std::memory_order_acquire);
      operation->started = false;
      operation->done.store(false, std::memory_order_relaxed);
      return operation;
    }
  }
  auto operation = std::make_shared<Operation>();
  if (pool_.size() < kPool) pool_.push_back(operation);
  return operation;
}

const Algorithm& CommunicatorImpl::algorithm_for(Collective collective, uint64_t bytes,
                                                 std::string_view wanted) const {
  if (wanted.empty() && collective == Collective::all_reduce) wanted = all_reduce_setting_;
  if (wanted.empty() || wanted == "auto") return choose_algorithm(collective, size(), bytes);
  const Algorithm& algorithm = require_algorithm(collective, wanted);
  const std::string problem = algorithm.supports(size());
  if (!problem.empty()) {
    throw Error(ErrorCode::unsupported,
                cat(algorithm.name, " does not run on ", size(), " ranks: ", problem),
                {.remedy = "use algorithm auto"});
  }
  return algorithm;
}

const Plan& CommunicatorImpl::plan_for(const Algorithm& algorithm, int root) {
  std::unique_ptr<Plan>& plan = plans_[{algorithm_index(algorithm), root}];
  if (!plan) {
    const Shape shape{.ranks = size(), .rank = rank_, .root = root};
    plan = std::make_unique<Plan>(make_plan(algorithm.collective, shape, algorithm.emit(shape)));
  }
  return *plan;
}

void CommunicatorImpl::set_deadline(Operation& operation, const CallOptions& options) const {
  operation.timeout = options.timeout.value_or(timeout_);
  operation.deadline =
      operation.timeout.count() == 0 ? Deadline::never() : Deadline::after(operation.timeout);
}

std::shared_ptr<Operation> CommunicatorImpl::start(const Request& request,
                                                   const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  const std::unique_lock lock = lock_for_call();
  const DType dtype = request.output.dtype;
  const Algorithm& algorithm =
      algorithm_for(request.collective, request.count * size_of(dtype), options.algorithm);
  std::shared_ptr<Operation> operation = take_operation();
  Call& call = operation->call;
  call.plan = &plan_for(algorithm, request.root);
  call.signature = {.collective = request.collective,
                    .dtype = dtype,
                    .op = request.op,
                    .algorithm = static_cast<uint8_t>(algorithm_index(algorithm)),
                    .root = request.root,
                    .count = request.count};
  call.input = static_cast<const std::byte*>(request.input.data);
  call.output = static_cast<std::byte*>(request.output.data);
  call.number = ++calls_made_;
  call.point_to_point = false;
  const bool divides = request.op == ReduceOp::avg &&
                       (request.collective != Collective::reduce || request.root == rank_);
  operation->result = divides ? request.output : Buffer{};
  operation->result.count = request.count;
  operation->peer = -1;
  set_deadline(*operation, options);
  recorder_.started(call.number, call.signature, now_ns());
  collectives_.push_back(operation);
  engine_->call_begins();
  return operation;
}

std::shared_ptr<Operation> CommunicatorImpl::start_p2p(bool sends, const std::byte* input,
                                                       std::byte* output, uint64_t count,
                                                       DType dtype, int peer,
                                                       const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  const std::unique_lock lock = lock_for_call();
  Stream& stream = (sends ? sends_ : recvs_)[peer];
  if (!stream.plan) {
    Program program;
    program.steps = {sends ? tutti::send({peer}, {tutti::input(0)})
                           : tutti::recv(peer, {tutti::output(0)})};
    stream.plan = std::make_unique<Plan>(make_plan(
        Collective::send_recv, {.ranks = size(), .rank = rank_, .root = 0}, std::move(program)));
  }
  std::shared_ptr<Operation> operation = take_operation();
  operation->call = {
      .plan = stream.plan.get(),
      .signature = {.collective = Collective::send_recv, .dtype = dtype, .count = count},
      .input = input,
      .output = output,
      .number = ++stream.made,
      .point_to_point = true};
  operation->result = {};
  operation->peer = peer;
  operation->sends = sends;
  set_deadline(*operation, options);
  stream.calls.push_back(operation);
  ++p2p_active_;
  engine_->call_begins();
  return operation;
}

// ---- progress

bool CommunicatorImpl::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
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
    moved |= advance(operation, execution_);
    if (!execution_.done() || (transport_ && !transport_->collectives_sent())) break;
    complete(operation);
    collectives_.erase(collectives_.begin());
    moved = true;
  }
  if (p2p_active_ > 0) moved |= progress_streams();
  return moved;
}

bool CommunicatorImpl::progress_streams() {
  bool moved = false;
  for (std::vector<Stream>* streams : {&sends_, &recvs_}) {
    for (Stream& stream : *streams) {
      while (!stream.calls.empty() && !abort_.raised()) {
        Operation& operation = *stream.calls.front();
        moved |= advance(operation, stream.execution);
        if (!stream.execution.done()) break;
        if (operation.sends && !transport_->p2p_sent(operation.peer)) break;
        complete(operation);
        stream.calls.erase(stream.calls.begin());
        --p2p_active_;
        moved = true;
      }
    }
  }
  return moved;
}

bool CommunicatorImpl::advance(Operation& operation, Execution& execution) {
  if (!operation.started) {
    execution.start(operation.call, transport_.get(), limits_);
    operation.started = true;
  }
  const bool moved = execution.progress();
  if (execution.unexpected()) report_unexpected(operation, *execution.unexpected());
  return moved;
}

// After an abort nothing moves any more.
void CommunicatorImpl::abandon_calls() {
  for (size_t left = collectives_.size() + p2p_active_; left > 0; --left) engine_->call_ends();
  collectives_.clear();
  p2p_active_ = 0;
  for (std::vector<Stream>* streams : {&sends_, &recvs_}) {
    for (Stream& stream : *streams) stream.calls.clear();
  }
}

void CommunicatorImpl::complete(Operation& operation) {
  if (operation.result.data != nullptr) {
    divide_by(operation.result.data, operation.result.count, operation.result.dtype, size());
  }
  if (operation.peer < 0) recorder_.finished(operation.call.number, now_ns());
  operation.done.store(true, std::memory_order_release);
  engine_->call_ends();
}

// ---- failure

void CommunicatorImpl::raise_everywhere(const Error& error) {
  engine_->control().poison(id_, error);
  on_abort(error);
}

void CommunicatorImpl::abort(const Error& error) { raise_everywhere(error); }

void CommunicatorImpl::on_abort(const Error& error) {
  constexpr size_t kCallsShown = 4;
  if (!abort_.raise(error) || recorder_.last_started() == 0) return;
  log(LogLevel::warning, cat("communicator aborted on ", describe(rank_),
                             "; its last calls were:", recorder_.history(kCallsShown)));
}

void CommunicatorImpl::report_unexpected(const Operation& operation, const Unexpected& message) {
  const Call& call = operation.call;
  const Signature theirs = decode(message.header.signature);
  if (message.header.call == call.number && theirs == call.signature) {
    raise_everywhere(Error(ErrorCode::connection_lost,
                           cat(describe(message.peer), " sent ", message.header.bytes,
                               " bytes for slice ", message.header.slice, " of call ", call.number,
                               " (", to_string(call.signature), ") where ", describe(rank_),
                               " expected ", message.bytes, " bytes for slice ", message.slice),
                           {.cause = "the message was cut off or damaged on its way"}));
    return;
  }
  raise_mismatch(call.number, call.signature, message.peer, message.header.call, theirs);
}

void CommunicatorImpl::raise_mismatch(uint32_t call, const Signature& mine, int peer,
                                      uint32_t their_call, const Signature& theirs) {
  raise_everywhere(Error(
      ErrorCode::mismatch,
      cat("the calls of two ranks do not fit together: in its call ", call, " ", describe(rank_),
          " called ", to_string(mine), "; in its call ", their_call, " ", describe(peer),
          " called ", to_string(theirs)),
      {.cause = call == their_call
                    ? "the ranks passed different arguments"
                    : "one of the ranks made a call that the other did not, or in another order",
       .remedy = "make the same calls with the same arguments, in the same order, on every rank"}));
}

}  // namespace tutti::internal
