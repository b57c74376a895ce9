// A hash of a collective's result: equal exactly where every bit is.
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

// Of what everybody's output is. Where all ranks have the same result (all_reduce), it is that of
// rank 0's; where only the root has one (reduce, gather), of the root's; else it is that of the
// hashes of all ranks in turn.
struct Digest {
  Sha256 hash = {};
  std::vector<int> other_ranks;  // of all_reduce: whose results differ from rank 0's
};
// Collective; the same on every rank. `output`: this rank's.
Digest digest(Communicator& comm, const Layout& layout, std::span<const std::byte> output);

}  // namespace tutti::bench
