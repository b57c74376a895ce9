#include "collectives/runtime/calls/call_compiler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/interchange/resolve.h"

namespace tutti::internal {

namespace {

bool is_ordered(const Reduction& reduction) {
  return reduction.op == ReduceOp::user && !reduction.function->commutative;
}

bool is_whole(const Reduction& reduction) {
  return reduction.op != ReduceOp::user || reduction.function != nullptr;
}

}  // namespace

// The initial limits serve a single rank, which sends nothing; use() replaces them.
CallCompiler::CallCompiler(int rank, int size, MessagePlan message_plan)
    : rank_(rank),
      size_(size),
      message_plan_(std::move(message_plan)),
      all_reduce_setting_(settings().get_string("TUTTI_ALGORITHM")),
      deterministic_(settings().get_bool("TUTTI_DETERMINISTIC")),
      limits_(Limits::of_one_path(1, 1, {1 << 20, 1 << 20})) {}

void CallCompiler::use(std::shared_ptr<Plans> plans, std::shared_ptr<Plans> plans_in_rank_order) {
  const Plans::Kind& kind = plans->kind();
  limits_ = kind.limits;
  plans_ = std::move(plans);
  plans_in_rank_order_ = std::move(plans_in_rank_order);
}

// Returns the compiled call. The cache compares everything that compile() checks.
const std::shared_ptr<const CompiledCall>& CallCompiler::compiled(const Request& request,
                                                                  const CallOptions& options) {
  // Calls with an invalid dtype are not cached.
  const bool has_types =
      static_cast<size_t>(std::max(request.input.dtype, request.output.dtype)) < kEveryDType;
  const bool has_own = request.uneven || !has_types || !is_whole(request.op);
  if (has_own) return new_call_ = compile(request, options);
  const CallKey key = CallKey::of(request, options);
  const std::string_view algorithm = options.algorithm == "auto" ? "" : options.algorithm;
  if (const CallCache::Compiled* const kept = kept_.find(key, algorithm, request.op)) return *kept;
  return kept_.put(key, algorithm, compile(request, options));
}

std::shared_ptr<const CompiledCall> CallCompiler::compile(Request request,
                                                          const CallOptions& options) {
  complete(request, rank_, size_);
  CompiledCall compiled;
  if (request.collective == Collective::send_recv) {
    compile_message(request, options, compiled);
  } else {
    compile_collective(request, options, compiled);
  }
  derive(compiled, limits_, is_near(compiled.peer));
  return std::make_shared<const CompiledCall>(std::move(compiled));
}

void CallCompiler::compile_message(const Request& request, const CallOptions& options,
                                   CompiledCall& compiled) const {
  const int lowest = request.sends ? 0 : kAnyTag;
  if (options.tag < lowest || options.tag > kLargestTag) {
    throw Error(
        ErrorCode::invalid_argument,
        cat(request.sends ? "send" : "recv", ": tag ", options.tag, " is not in the range 0 to ",
            kLargestTag, request.sends ? "" : " and is not kAnyTag"));
  }
  compiled.input_count = request.input.count;
  compiled.plan = message_plan_(request.root, request.sends);
  compiled.signature = {.collective = Collective::send_recv,
                        .dtype = request.dtype(),
                        .own = request.own,
                        .algorithm = request.tail,
                        .root = options.tag,
                        .count = request.count};
  compiled.peer = request.root;
  compiled.tag = options.tag;
  compiled.sends = request.sends;
  compiled.may_be_shorter = options.may_be_shorter;
}

void CallCompiler::compile_collective(Request& request, const CallOptions& options,
                                      CompiledCall& compiled) {
  const Algorithm* algorithm = nullptr;
  const bool canonical = must_be_canonical(request, options);
  Plans* const plans = (canonical ? plans_in_rank_order_ : plans_).get();
  if (plans != nullptr) {
    algorithm = named(request, options, canonical, *plans);
    const Grade at_least = canonical ? Grade::canonical : Grade::same_bits;
    if (algorithm == nullptr) algorithm = &plans->choose(wanted_of(request, size_, at_least));
  } else if (!options.algorithm.empty() && options.algorithm != "auto") {
    resolve_algorithm(request.collective, options.algorithm);  // an unknown name is an error
  }
  const Plan* plan = nullptr;
  if (algorithm != nullptr) {
    plan = &plans->plan(*algorithm, has_root(request.collective) ? request.root : 0,
                        aliasing_of(request) == Aliasing::in_place, arithmetic_of(request.op.op));
  }
  compiled = compiled_of(std::move(request), rank_, size_, algorithm, plan);
}

bool CallCompiler::must_be_canonical(const Request& request, const CallOptions& options) const {
  return reduces(request.collective) &&
         (is_ordered(request.op) || options.deterministic || deterministic_);
}

// Returns the algorithm named by the call or, for an all_reduce, by TUTTI_ALGORITHM; null if the
// library chooses.
const Algorithm* CallCompiler::named(const Request& request, const CallOptions& options,
                                     bool canonical, const Plans& plans) const {
  std::string_view wanted = options.algorithm;
  if (wanted.empty() && request.collective == Collective::all_reduce) wanted = all_reduce_setting_;
  if (wanted.empty() || wanted == "auto") return nullptr;
  const Algorithm& algorithm = resolve_algorithm(request.collective, wanted);
  std::string problem = why_unsupported(algorithm, plans.shape(request.root));
  if (!problem.empty()) {
    problem = cat("does not run on ", size_, " ranks: ", problem);
  } else if (algorithm.grade < Grade::canonical && canonical) {
    problem =
        cat("is graded ", name(algorithm.grade), ", but ",
            is_ordered(request.op) ? "an operator that does not commute" : "a deterministic call",
            " requires a canonical algorithm");
  } else if (request.blocks_are_private() && !algorithm.direct) {
    problem = "forwards blocks, but only their owners know the lengths";
  }
  if (problem.empty()) return &algorithm;
  throw Error(ErrorCode::unsupported,
              cat(name(request.collective), " algorithm ", algorithm.name, ' ', problem),
              {.remedy = "use algorithm auto"});
}

}  // namespace tutti::internal
