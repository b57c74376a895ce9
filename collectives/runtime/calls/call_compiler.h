// Turns a request into a compiled call: checks the request, chooses the algorithm, makes the plan.
// Recently compiled kinds of calls are looked up (call_cache.h).
//
// Threads: not thread-safe except must_be_canonical() and named_algorithm().
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
  // Function that returns the plan of a message to or from a peer.
  using MessagePlan = std::function<const Plan*(int peer, bool sends)>;

  // Compiles for `rank` of `size`. Reads TUTTI_ALGORITHM and TUTTI_DETERMINISTIC.
  CallCompiler(int rank, int size, MessagePlan message_plan);
  // Sets the plans to use; with several ranks, call it before compiled(). `plans` order the ranks
  // by their layout on the hosts. `plans_in_rank_order` order them by rank; canonical calls use
  // these.
  void use(std::shared_ptr<Plans> plans, std::shared_ptr<Plans> plans_in_rank_order);

  // Returns the compiled call. Throws Error(invalid_argument) or Error(unsupported). The reference
  // is valid until the next call.
  const std::shared_ptr<const CompiledCall>& compiled(const Request& request,
                                                      const CallOptions& options);

  // Returns true if the call must use a canonical algorithm.
  bool must_be_canonical(const Request& request, const CallOptions& options) const;
  // Returns the algorithm named by CallOptions::algorithm or, for an all_reduce, by
  // TUTTI_ALGORITHM; null if neither names one. Throws Error(unsupported) if that algorithm does
  // not support the call among ranks in numerical order. There must be several ranks.
  const Algorithm* named_algorithm(const Request& request, const CallOptions& options,
                                   bool canonical) const {
    return named(request, options, canonical, *plans_in_rank_order_);
  }
  // Returns the communicator's shape with ranks in numerical order. There must be several ranks.
  Shape shape() const { return plans_in_rank_order_->shape(0); }

 private:
  std::shared_ptr<const CompiledCall> compile(Request request, const CallOptions& options);
  // Returns true if the peer of a message shares memory with this rank.
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
  std::shared_ptr<Plans> plans_;  // null for a single rank, as is plans_in_rank_order_
  std::shared_ptr<Plans> plans_in_rank_order_;
  CallCache kept_;
  std::shared_ptr<const CompiledCall> new_call_;  // a call that is not cached
};

}  // namespace tutti::internal
