// A call prepared for a kernel: its steps in the block's order, as flat arrays of plain values that
// only have to be copied to the device.
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
  std::vector<int32_t> ports;  // peers of the call
  std::vector<Awaited> awaited;
  // Launch parameters that the call determines. The pointers are set later.
  Launch launch;
  uint32_t blocks = 1;
  bool lends = false;  // true: some rank lends, so all buffers must be in windows
};

// Returns limits for derive() with which the call's slices fit into the mailboxes.
Limits limits_of(const MailboxShape& shape, Protocol protocol, uint32_t blocks);

// Lowers `rank`'s actions. `of_ranks[r]` is rank r's compiled call, derived with limits_of(); the
// compiled calls of other ranks are read only if those ranks lend. Throws Error(unsupported) for
// user-defined operators.
LoweredCall lower(std::span<const CompiledCall> of_ranks, int rank, std::span<const Action> actions,
                  const MailboxShape& shape, Protocol protocol);

}  // namespace tutti::gpu
