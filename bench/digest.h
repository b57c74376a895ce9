// Hashes a collective's result. Two hashes are equal exactly if all bits of the results are equal.
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

// The hash of a collective's outputs. If all ranks have the same result (all_reduce), `hash` is the
// hash of rank 0's output. If only the root has a result (reduce, gather), `hash` is the hash of
// the root's output. Otherwise `hash` is the hash of the hashes of all ranks, in rank order.
struct Digest {
  Sha256 hash = {};
  std::vector<int> other_ranks;  // all_reduce: ranks whose result differs from rank 0's
};
// Computes the digest from each rank's `output`. Collective; returns the same digest on every rank.
Digest digest(Communicator& comm, const Layout& layout, std::span<const std::byte> output);

}  // namespace tutti::bench
