// Messages without a slot: the receiver reads the data in the sender's memory, because all ranks
// can access each other's buffers.
//
//     by a slot    sender: input ──copy──→ slot of receiver   receiver: slot ──→ output
//     lent         sender: announces it                       receiver: sender's input ──→ output
//
// Data in the sender's input or output can be lent unless it would have to be converted or scaled
// on the way. The sender must not overwrite it before it has been read: actions that would do so
// wait, and all ranks' orders are walked once more to check that they still terminate. Some do not:
// two ranks that exchange a chunk in place must copy at least one (proof/rendezvous.h). Such calls
// lend nothing.
//
// (NCCL's "direct" primitives read peers' registered buffers in this way.)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/gpu/schedule.h"
#include "collectives/program/plan.h"
#include "collectives/request.h"
#include "collectives/runtime/calls/compiled_call.h"

namespace tutti::gpu {

// Returns true if the call's ranks know each other's layout: blocks have equal length, and all
// ranks have both buffers.
bool may_lend(const Request& request);

// `plans[r]`, `compiled[r]` and `plain[r]` are rank r's. Returns actions that lend all lendable
// messages; nullopt if there are none or if the result would not terminate.
std::optional<std::vector<Actions>> lend(std::span<const Plan> plans,
                                         std::span<const CompiledCall> compiled,
                                         std::vector<Actions> plain, uint32_t room);

}  // namespace tutti::gpu
