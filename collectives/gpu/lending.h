// Messages that need no slot: the receiver reads them where they lie in the sender's memory, as all
// ranks reach each other's buffers.
//
//     by a slot    sender: input ──copy──→ slot of the receiver      receiver: slot ──→ output
//     lent         sender: says that it is there                     receiver: sender's input ──→
//     output
//
// What lies in the sender's input or output can be lent, unless it would have to be converted or
// scaled on the way. The sender must not write there before it was read: the actions that do wait
// for it, and the orders of all ranks are walked once more for that. Not all end: two ranks that
// exchange a chunk in place must copy at least one (proof/rendezvous.h); those calls lend nothing.
//
// (NCCL reads peers' registered buffers so, by its "direct" primitives.)
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

// Whether such a call's ranks know of each other what lies where: blocks are equally long, and all
// ranks have both buffers.
bool may_lend(const Request& request);

// `plans[r]`, `compiled[r]`, `plain[r]`: rank r's. Actions that lend what can be lent; none where
// nothing can, or they would not end.
std::optional<std::vector<Actions>> lend(std::span<const Plan> plans,
                                         std::span<const CompiledCall> compiled,
                                         std::vector<Actions> plain, uint32_t room);

}  // namespace tutti::gpu
