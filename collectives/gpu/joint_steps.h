// Replaces the messages that a rank exchanges with all other ranks by a single step. If all ranks
// lend this rank the data that it sums, the step reads from all of them at once; if all ranks are
// to receive the sum, the step writes to all of them.
//
//     two_shot, rank r    receive a's piece r, add ... receive p's piece r, add; send the sum
//     joined              sum of piece r over the inputs of all ranks ──→ the outputs of all ranks
//
// Nothing goes through scratch or slots. If the ranks' windows have a multicast address, the switch
// between the GPUs sums and copies (NVLS), and each byte passes a GPU's link once. The operands are
// taken in rank order, so calls that must be canonical are not joined.
//
// join() finds such steps in the program. A rank may read all inputs once all ranks have announced
// that their inputs are ready. It may write a peer's output before the peer reaches its receive,
// because the peer has used that memory only for a loan to this rank, which this rank has read by
// then.
//
// (NVLS: B. Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor
// Collectives, ISCA 2020. All-pairs two-phase all-reduce: A. Shah et al., MSCCL++, 2025.)
#pragma once

#include <span>
#include <vector>

#include "collectives/gpu/schedule.h"
#include "collectives/program/plan.h"

namespace tutti::gpu {

// Returns the actions of `lent`, with as many of them as possible replaced by joint steps. Returns
// `lent` itself if it has no such actions, or if the joint steps might not terminate. The call
// computes the same as with `lent`, except for the order of operands. `plans[r]`: plan of rank r.
// `lent[r]`: actions of rank r from lend(). `room`: slots per connection.
std::vector<Actions> join(std::span<const Plan> plans, const std::vector<Actions>& lent,
                          uint32_t room);

}  // namespace tutti::gpu
