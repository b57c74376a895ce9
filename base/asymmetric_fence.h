// Fences for two sides of which one acts a million times as often as the other: the frequent side
// pays nothing, and the rare side makes every processor in the machine pass a fence.
//
//   frequent:  x = 1; light; read y          rare:  y = 1; heavy; read x
//
// At least one of the two reads sees the other side's write, as with a full fence on each side
// (D. Dice et al., "Asymmetric Dekker synchronization"; membarrier(2)).
#pragma once

#include <atomic>

namespace tutti {

// Makes this process one that others' heavy fences reach; false where the system has no such call.
// Then both sides need full fences.
bool join_asymmetric_fences();

// For the frequent side: keeps the compiler from reordering.
inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
// For the rare side; a microsecond or so. Reaches all processes that have joined.
void heavy_fence();

}  // namespace tutti
