// Selects the members that leave if some members that are alive cannot reach each other for data.
//
//   hosts  A {0 1}   B {2 3}   C {4 5}      rank 3 does not reach rank 4
//
//   B and C cannot communicate, while A reaches both: B or C must leave. Each of them has two
//   members and does not reach one host, so the later host leaves: C, including rank 5, because
//   messages of rank 5 use the same network.
//
// The host that cannot reach the most other hosts leaves. Among equal hosts, the one with the
// fewest members leaves, and if there are several of these, the last one. This is repeated until
// all hosts reach each other. So if few hosts are cut off from many, the few leave. (A minimum
// vertex cover would be exact; if a network is cut in two parts, both methods remove the smaller
// part.) If two members of one host cannot reach each other, the later one leaves.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

// Returns `living` without the members that leave. Members are identified by position. `hosts`: the
// host of each member. `broken`: pairs of members that cannot reach each other in at least one
// direction.
std::vector<bool> separate(std::vector<bool> living, std::span<const std::string_view> hosts,
                           std::span<const std::pair<size_t, size_t>> broken);

}  // namespace tutti::bootstrap
