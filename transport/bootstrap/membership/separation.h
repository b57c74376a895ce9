// Selects the members that leave when some that are alive cannot reach each other for data.
//
//   hosts  A {0 1}   B {2 3}   C {4 5}      rank 3 does not reach rank 4
//
//   B and C cannot communicate, while A reaches both: one of the two must leave. Both have one such
//   pair and two members, so the later one leaves: C, with rank 5, whose messages use the same
//   network.
//
// Repeatedly the host with the most unreachable hosts leaves; of equal ones the one with the fewest
// members, and of these the last one. So if few hosts are cut off from many, the few leave. (A
// minimum vertex cover would be exact; if a network is cut in two parts, both methods remove the
// smaller part.) Of two members of one host the later one leaves.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

// Members are positions. `hosts`: host by member. `broken`: pairs of which one cannot reach the
// other. Returns `living` without the members that leave.
std::vector<bool> separate(std::vector<bool> living, std::span<const std::string_view> hosts,
                           std::span<const std::pair<size_t, size_t>> broken);

}  // namespace tutti::bootstrap
