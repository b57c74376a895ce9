// One step in place of a rank's messages with all others: where all of them lend it what it adds
// up, it reads from all of them at once, and where all of them are to have the sum, it writes to
// all.
//
//     two_shot, rank r    receive a's piece r, add ... receive p's piece r, add; send the sum to
//     all joined              sum of piece r over the inputs of all ranks ──→ the outputs of all
//     ranks
//
// Nothing goes through scratch or slots, and where the ranks' windows have a multicast address, the
// switch between the GPUs adds and copies (NVLS): each byte passes a GPU's link once. The operands
// are taken in the order of the ranks, so calls that must have canonical bits are not joined.
//
// What is joined is found in the program. A rank may read all inputs when all have said that theirs
// are there. It may write a peer's output before the peer's receive is at its turn, as the peer has
// done nothing with that place but to lend it to this rank, which has read it by then.
//
// (NVLS: B. Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor
// Collectives, ISCA 2020. All-pairs two-phase all-reduce: A. Shah et al., MSCCL++, 2025.)
#pragma once

#include <span>
#include <vector>

#include "collectives/gpu/schedule.h"
#include "collectives/program/plan.h"

namespace tutti::gpu {

// `plans[r]`, `lent[r]`: rank r's; what lend() gave. Actions that are joined where they can be, of
// the same meaning up to the order of operands.
std::vector<Actions> join(std::span<const Plan> plans, const std::vector<Actions>& lent,
                          uint32_t room);

}  // namespace tutti::gpu
