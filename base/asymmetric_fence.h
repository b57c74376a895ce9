// Fences for two sides, one of which acts a million times as often as the other: the frequent side
// pays nothing, and the rare side makes every processor in the machine pass a fence.
//
//   frequent:  x = 1; light; read y          rare:  y = 1; heavy; read x
//
// At least one of the two reads sees the other side's write, as with a full fence on each side
// (D. Dice et al., "Asymmetric Dekker synchronization"; membarrier(2)).
#pragma once

#include <atomic>

namespace tutti {

// Registers this process for other processes' heavy fences. Returns false if the system lacks the
// call; then both sides need full fences.
bool join_asymmetric_fences();

// For the frequent side: prevents the compiler from reordering.
inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
// For the rare side: takes about a microsecond and reaches all registered processes.
void heavy_fence();

}  // namespace tutti
