// From the caller's request to a compiled call: checks, choice of algorithm, plan. Calls of the
// kinds that were made last are only looked up (call_cache.h).
//
// Threads: one at a time, but for must_be_canonical() and named_algorithm().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "collectives/program/plan.h"
#include "collectives/request.h"
#include "collectives/runtime/calls/call_cache.h"
#include "collectives/runtime/calls/compiled_call.h"
#include "collectives/runtime/calls/plans.h"
#include "transport/limits.h"

namespace tutti::internal {

class CallCompiler {
 public:
  // The program of a message to or from a peer.
  using MessagePlan = std::function<const Plan*(int peer, bool sends)>;

  // For `rank` of `size`. Reads TUTTI_ALGORITHM and TUTTI_DETERMINISTIC.
  CallCompiler(int rank, int size, MessagePlan message_plan);
  // Before the first call of several ranks: plans over the layout of the ranks, and in the order of
  // their numbers, which canonical sums are in.
  void use(std::shared_ptr<Plans> plans, std::shared_ptr<Plans> plans_in_rank_order);

  // Throws Error(invalid_argument) or Error(unsupported). Valid until the next call.
  const std::shared_ptr<const CompiledCall>& compiled(const Request& request,
                                                      const CallOptions& options);

  // True where the result must not depend on the algorithm.
  bool must_be_canonical(const Request& request, const CallOptions& options) const;
  // The algorithm that the call or the setting names, in the order of the ranks' numbers; null: the
  // library chooses. Throws Error(unsupported) where it cannot run.
  const Algorithm* named_algorithm(const Request& request, const CallOptions& options,
                                   bool canonical) const {
    return named(request, options, canonical, *plans_in_rank_order_);
  }
  // Several ranks, in the order of their numbers.
  Shape shape() const { return plans_in_rank_order_->shape(0); }

 private:
  std::shared_ptr<const CompiledCall> compile(Request request, const CallOptions& options);
  // The peer of a message; where no memory is shared, it makes no difference.
  bool is_near(int peer) const {
    return peer >= 0 && plans_ && plans_->kind().hosts.near(rank_, peer);
  }
  void compile_message(const Request& request, const CallOptions& options,
                       CompiledCall& compiled) const;
  void compile_collective(Request& request, const CallOptions& options, CompiledCall& compiled);
  const Algorithm* named(const Request& request, const CallOptions& options, bool canonical,
                         const Plans& plans) const;

  const int rank_;
  const int size_;
  const MessagePlan message_plan_;
  const std::string all_reduce_setting_;
  const bool deterministic_;
  Limits limits_;
  std::shared_ptr<Plans> plans_;  // null where there is only one rank, as is the next
  std::shared_ptr<Plans> plans_in_rank_order_;
  CallCache kept_;
  std::shared_ptr<const CompiledCall> new_call_;  // of a call that is not kept
};

}  // namespace tutti::internal
