// Messages without a slot: the receiver reads the data in the sender's memory. This needs buffers
// that all ranks can access.
//
//     by a slot    sender: input ──copy──→ slot of receiver   receiver: slot ──→ output
//     lent         sender: announces it                       receiver: sender's input ──→ output
//
// Data in the sender's input or output can be lent unless it has to be converted or scaled on the
// way. The sender must not overwrite the data before the receiver has read it, so actions that
// would overwrite it wait. All ranks' orders are then walked once more, to check that they still
// terminate. Some orders do not: if two ranks exchange a chunk in place, at least one of them must
// copy it (proof/rendezvous.h). Such calls lend nothing.
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

// Returns true if each rank can compute where the other ranks' data is, that is, if blocks have
// equal length and all ranks have both buffers.
bool may_lend(const Request& request);

// Returns actions that lend all messages that can be lent; nullopt if no message can be lent, or if
// the ranks would wait for each other forever. `plans[r]`, `compiled[r]` and `plain[r]` belong to
// rank r. `room`: slots per connection.
std::optional<std::vector<Actions>> lend(std::span<const Plan> plans,
                                         std::span<const CompiledCall> compiled,
                                         std::vector<Actions> plain, uint32_t room);

}  // namespace tutti::gpu
