// Prepares one rank's call for a kernel.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "collectives/gpu/joint_steps.h"
#include "collectives/gpu/lending.h"
#include "collectives/gpu/lower.h"
#include "collectives/program/algorithm.h"
#include "collectives/request.h"
#include "collectives/runtime/calls/compiled_call.h"

namespace tutti::testing {

struct ReadyCall {
  // `lends`: lends messages, as if the buffers were in windows. `joins`: uses joint steps, which
  // may combine operands in any order.
  ReadyCall(int rank, int ranks, const Algorithm& algorithm, Request request,
            const gpu::MailboxShape& shape, gpu::Protocol protocol, uint32_t blocks,
            bool lends = false, bool joins = false) {
    complete(request, rank, ranks);
    input = static_cast<const std::byte*>(request.input.data);
    output = static_cast<std::byte*>(request.output.data);
    plans = make_plans(algorithm,
                       {.ranks = ranks, .root = has_root(request.collective) ? request.root : 0},
                       arithmetic_of(request.op.op));
    for (int r = 0; r < ranks; ++r) {
      compiled.push_back(
          compiled_of(Request(request), r, ranks, &algorithm, &plans[static_cast<size_t>(r)]));
      derive(compiled.back(), gpu::limits_of(shape, protocol, blocks));
    }
    dtype = compiled[0].dtype;
    auto actions = gpu::schedule(plans, shape.slots);
    std::optional<std::vector<gpu::Actions>> lending;
    if (lends && protocol == gpu::Protocol::simple && gpu::may_lend(request)) {
      lending = gpu::lend(plans, compiled, actions, shape.slots);
      if (lending) actions = joins ? gpu::join(plans, *lending, shape.slots) : *lending;
    }
    lowered = gpu::lower(compiled, rank, actions[static_cast<size_t>(rank)], shape, protocol);
    lowered.lends = lending.has_value();
  }

  std::vector<Plan> plans;
  std::vector<CompiledCall> compiled;
  gpu::LoweredCall lowered;
  DType dtype = DType::u8;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

}  // namespace tutti::testing
