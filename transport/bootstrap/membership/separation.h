// Which members leave when some that live cannot reach each other for data.
//
//   hosts  A {0 1}   B {2 3}   C {4 5}      rank 3 does not reach rank 4
//
//   B and C cannot talk, while A reaches both: one of the two must go. Both have one such pair and
//   two members, so the later one goes: C, with rank 5, whose messages take the same network.
//
// Repeatedly the host with the most unreachable hosts leaves; of equal ones the one with the fewest
// members, and of these the last one. So of hosts that are cut off from many others these few
// leave, and not the many. (A minimum vertex cover would be exact; where a network is cut in two
// parts both give the smaller part.) Of two members of one host the later one leaves.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

// Members by place. `hosts`: each one's. `broken`: pairs that one of the two cannot reach. Returns
// `living` without those that leave.
std::vector<bool> separate(std::vector<bool> living, std::span<const std::string_view> hosts,
                           std::span<const std::pair<size_t, size_t>> broken);

}  // namespace tutti::bootstrap
