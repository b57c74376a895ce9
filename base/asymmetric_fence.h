// Memory fences for two sides that share words of memory. The frequent side uses light_fence(),
// which only restrains the compiler. The rare side uses heavy_fence(), which makes every processor
// of the registered processes pass a fence.
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

// The frequent side's fence. It prevents the compiler, but not the processor, from reordering.
inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
// The rare side's fence. It makes all registered processes pass a full fence, which takes about a
// microsecond.
void heavy_fence();

}  // namespace tutti
