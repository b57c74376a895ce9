// A call made ready for a kernel: its steps in the block's order, as flat arrays of plain values,
// which only have to be copied to the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/gpu/call.h"
#include "collectives/gpu/schedule.h"
#include "collectives/runtime/calls/compiled_call.h"
#include "transport/limits.h"

namespace tutti::gpu {

struct LoweredCall {
  std::vector<DeviceStep> steps;
  std::vector<Part> parts;
  std::vector<int32_t> ports;  // the peers that the call talks to
  std::vector<Awaited> awaited;
  // All of a launch that follows from the call: no pointers yet.
  Launch launch;
  uint32_t blocks = 1;
  bool lends = false;  // some rank does: all buffers must be in windows
};

// What derive() is to know of the mailboxes, so that the call is cut into slices that fit.
Limits limits_of(const MailboxShape& shape, Protocol protocol, uint32_t blocks);

// What `rank` does. `of_ranks[r]`: rank r's, derived by limits_of(); that of another rank is looked
// at where it lends. Throws Error(unsupported) for the caller's own operators.
LoweredCall lower(std::span<const CompiledCall> of_ranks, int rank, std::span<const Action> actions,
                  const MailboxShape& shape, Protocol protocol);

}  // namespace tutti::gpu
