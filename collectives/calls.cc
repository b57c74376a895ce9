// From what the caller asked for to an operation that runs: checks, choice of algorithm, plan.

#include <cstring>
#include <utility>

#include "base/reduce.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator_impl.h"
#include "collectives/interchange/resolve.h"
#include "collectives/planner.h"

namespace tutti::internal {

namespace {

// 30 bits, for Signature::root: ranks that disagree about the blocks are found out.
int32_t hash_of(const Blocks& blocks) {
  uint64_t hash = 14695981039346656037u;
  for (const uint64_t count : blocks.counts) hash = (hash ^ count) * 1099511628211u;
  return static_cast<int32_t>((hash ^ hash >> 32) & 0x3fffffff);
}

Signature signature_of(const Request& request, uint16_t algorithm) {
  Signature signature{.collective = request.collective,
                      .dtype = request.dtype(),
                      .op = request.op.op,
                      .uneven = request.uneven,
                      .algorithm = algorithm,
                      .count = request.count};
  if (has_root(request.collective)) signature.root = request.root;
  if (request.uneven && !request.blocks_are_private()) {
    signature.root =
        hash_of(request.input_blocks.empty() ? request.output_blocks : request.input_blocks);
  }
  return signature;
}

// How many ranks' inputs the result on `rank` combines; 0: there is no result.
int combined_ranks(const Request& request, int rank, int size) {
  switch (request.collective) {
    case Collective::scan:
      return rank + 1;
    case Collective::exscan:
      return rank;
    case Collective::reduce:
      return rank == request.root ? size : 0;
    default:
      return size;
  }
}

// The only rank's call, there and then.
void run_alone(const PreparedCall& prepared) {
  const Call& call = prepared.call;
  const Signature& signature = call.signature;
  if (signature.collective == Collective::barrier || signature.collective == Collective::exscan) {
    return;
  }
  const uint64_t size = size_of(signature.dtype);
  const auto start = [&](const Blocks& blocks) {
    return blocks.empty() ? 0 : blocks.displacements[0] * size;
  };
  const std::byte* const input = call.input + start(call.input_blocks);
  std::byte* const output = call.output + start(call.output_blocks);
  const uint64_t count =
      call.input_blocks.empty() ? prepared.input_count : call.input_blocks.counts[0];
  if (prepared.op.op == ReduceOp::premul_sum) {
    scale(output, input, count, signature.dtype, prepared.op.factor);
  } else if (output != input && count > 0) {
    std::memmove(output, input, count * size);
  }
}

// Where the product may be written before anything is sent: where the result goes, else a place of
// its own.
void scale_input(const PreparedCall& prepared, Operation& operation) {
  Call& call = operation.call;
  const DType dtype = call.signature.dtype;
  const Collective collective = call.signature.collective;
  std::byte* scaled = call.output;
  if (collective != Collective::all_reduce && collective != Collective::scan) {
    operation.scaled.resize(prepared.input_count * size_of(dtype));
    scaled = operation.scaled.data();
  }
  scale(scaled, call.input, prepared.input_count, dtype, prepared.op.factor);
  call.input = scaled;
}

}  // namespace

// ---- planning

std::shared_ptr<const PreparedCall> CommunicatorImpl::prepare(Request&& request,
                                                              const CallOptions& options) {
  require_own_process();
  const std::unique_lock lock = lock_for_call();
  return std::make_shared<const PreparedCall>(plan(std::move(request), options));
}

PreparedCall CommunicatorImpl::plan(Request&& request, const CallOptions& options) {
  tutti::complete(request, rank_, size());
  PreparedCall prepared;
  prepared.timeout = options.timeout.value_or(timeout_);
  prepared.input_count = request.input.count;
  Call& call = prepared.call;
  call.input = static_cast<const std::byte*>(request.input.data);
  call.output = static_cast<std::byte*>(request.output.data);
  if (request.collective == Collective::send_recv) {
    plan_send_recv(request, prepared);
  } else {
    plan_collective(request, options, prepared);
  }
  return prepared;
}

void CommunicatorImpl::plan_send_recv(const Request& request, PreparedCall& prepared) {
  const int peer = request.root;
  std::unique_ptr<Plan>& plan = (request.sends ? sends_ : recvs_)[peer].plan;
  if (!plan) {
    Program program;
    program.steps = {request.sends ? tutti::send({peer}, {tutti::input(0)})
                                   : tutti::recv(peer, {tutti::output(0)})};
    plan = std::make_unique<Plan>(
        make_plan(Collective::send_recv, {.ranks = size(), .rank = rank_}, std::move(program)));
  }
  prepared.call.plan = plan.get();
  prepared.call.signature = {
      .collective = Collective::send_recv, .dtype = request.dtype(), .count = request.count};
  prepared.peer = peer;
  prepared.sends = request.sends;
}

void CommunicatorImpl::plan_collective(Request& request, const CallOptions& options,
                                       PreparedCall& prepared) {
  Call& call = prepared.call;
  const Algorithm* algorithm = nullptr;
  if (size() > 1) {
    algorithm = &algorithm_for(request, options);
  } else if (!options.algorithm.empty() && options.algorithm != "auto") {
    resolve_algorithm(request.collective, options.algorithm);  // a wrong name is wrong alone too
  }
  call.signature = signature_of(request, algorithm != nullptr ? algorithm->id : uint16_t{0});
  prepared.op = std::move(request.op);
  call.function = prepared.op.function.get();
  if (request.uneven) {
    call.uneven = true;
    call.own_count =
        has_input_blocks(request.collective) ? request.output.count : request.input.count;
    if (request.collective == Collective::all_to_all) call.own_count = 0;
    call.input_blocks = std::move(request.input_blocks);
    call.output_blocks = std::move(request.output_blocks);
  }
  if (algorithm == nullptr) return;
  prepared.algorithm = algorithm;
  call.plan = &plan_for(*algorithm, has_root(request.collective) ? request.root : 0);
  prepared.divisor = combined_ranks(request, rank_, size());
  if (prepared.op.op == ReduceOp::avg && prepared.divisor > 0) prepared.result = request.output;
}

const Algorithm& CommunicatorImpl::algorithm_for(const Request& request,
                                                 const CallOptions& options) {
  const Collective collective = request.collective;
  const bool ordered = request.op.op == ReduceOp::user && !request.op.function->commutative;
  const bool canonical =
      reduces(collective) && (ordered || options.deterministic || deterministic_);
  const Grade at_least = canonical ? Grade::canonical : Grade::same_bits;
  std::string_view wanted = options.algorithm;
  if (wanted.empty() && collective == Collective::all_reduce) wanted = all_reduce_setting_;
  if (wanted.empty() || wanted == "auto") {
    // What each rank knows of its own blocks only must not decide.
    constexpr uint64_t kUnknown = 64 << 10;
    const uint64_t bytes = request.count * size_of(request.dtype());
    return planner_->choose({.collective = collective,
                             .bytes = request.blocks_are_private() ? kUnknown
                                      : request.uneven             ? bytes / size()
                                                                   : bytes,
                             .dtype = request.dtype(),
                             .at_least = at_least,
                             .direct = request.blocks_are_private()});
  }
  const Algorithm& algorithm = resolve_algorithm(collective, wanted);
  std::string problem = algorithm.supports(shape(request.root));
  if (!problem.empty()) {
    problem = cat("does not run on ", size(), " ranks: ", problem);
  } else if (algorithm.grade < Grade::canonical && canonical) {
    problem = cat("is graded ", name(algorithm.grade), ", but ",
                  ordered ? "an operator that does not commute" : "a deterministic call",
                  " needs a canonical algorithm");
  } else if (request.blocks_are_private() && !algorithm.direct) {
    problem = "forwards blocks, but only their owners know how long they are";
  }
  if (problem.empty()) return algorithm;
  throw Error(ErrorCode::unsupported,
              cat(name(collective), " algorithm ", algorithm.name, ' ', problem),
              {.remedy = "use algorithm auto"});
}

const Plan& CommunicatorImpl::plan_for(const Algorithm& algorithm, int root) {
  std::unique_ptr<Plan>& plan = plans_[{algorithm.id, root}];
  if (!plan) {
    plan = std::make_unique<Plan>(
        make_plan(algorithm.collective, shape(root), algorithm.emit(shape(root))));
  }
  return *plan;
}

// ---- starting

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

std::shared_ptr<Operation> CommunicatorImpl::start(Request&& request, const CallOptions& options) {
  require_own_process();
  abort_.throw_if_raised();
  const std::unique_lock lock = lock_for_call();
  return start_locked(plan(std::move(request), options));
}

std::shared_ptr<Operation> CommunicatorImpl::start(const PreparedCall& prepared) {
  require_own_process();
  abort_.throw_if_raised();
  const std::unique_lock lock = lock_for_call();
  return start_locked(PreparedCall(prepared));
}

std::shared_ptr<Operation> CommunicatorImpl::start_locked(PreparedCall&& prepared) {
  if (prepared.call.plan == nullptr) {
    run_alone(prepared);
    return nullptr;
  }
  std::shared_ptr<Operation> operation = take_operation();
  Call& call = operation->call;
  call = std::move(prepared.call);
  operation->function = std::move(prepared.op.function);
  operation->result = prepared.result;
  operation->divisor = prepared.divisor;
  operation->peer = prepared.peer;
  operation->sends = prepared.sends;
  operation->timeout = prepared.timeout;
  operation->deadline =
      prepared.timeout.count() == 0 ? Deadline::never() : Deadline::after(prepared.timeout);
  if (prepared.op.op == ReduceOp::premul_sum) scale_input(prepared, *operation);
  if (prepared.peer >= 0) {
    Stream& stream = (prepared.sends ? sends_ : recvs_)[prepared.peer];
    call.number = ++stream.made;
    stream.calls.push_back(operation);
    ++p2p_active_;
  } else {
    call.number = ++calls_made_;
    recorder_.started(call.number, call.signature, now_ns());
    collectives_.push_back(operation);
  }
  engine_->call_begins();
  return operation;
}

}  // namespace tutti::internal
