// A hash of a collective's result: equal exactly if every bit is equal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/layout.h"
#include "collectives/communicator.h"

namespace tutti::bench {

using Sha256 = std::array<uint8_t, 32>;
Sha256 sha256(std::span<const std::byte> data);
std::string hex(const Sha256& hash);

// The hash of a collective's outputs: of rank 0's output if all ranks have the same result
// (all_reduce), of the root's output if only the root has one (reduce, gather), else of the hashes
// of all ranks, in rank order.
struct Digest {
  Sha256 hash = {};
  std::vector<int> other_ranks;  // all_reduce: ranks with another result than rank 0
};
// Computes the digest from each rank's `output`. Collective; returns the same digest on every rank.
Digest digest(Communicator& comm, const Layout& layout, std::span<const std::byte> output);

}  // namespace tutti::bench
