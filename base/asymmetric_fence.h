// Memory fences for two sides, one of which runs far more often than the other. The frequent side
// uses light_fence(), which only restrains the compiler; the rare side uses heavy_fence(), which
// makes every processor of the registered processes pass a fence.
//
//   frequent:  x = 1; light; read y          rare:  y = 1; heavy; read x
//
// At least one of the two reads sees the other side's write, as with a full fence on each side
// (D. Dice et al., "Asymmetric Dekker synchronization"; membarrier(2)).
#pragma once

#include <atomic>

namespace tutti {

// Registers this process, so that heavy_fence() of other processes reaches it. Returns false if the
// kernel has no membarrier(2); then both sides need full fences.
bool join_asymmetric_fences();

// Prevents the compiler from reordering: the fence of the frequent side.
inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
// Makes all registered processes pass a fence: the fence of the rare side. It takes about a
// microsecond.
void heavy_fence();

}  // namespace tutti
