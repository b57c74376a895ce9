// The quorum rule: which members of a communicator may decide for all of them.
//
//   members 0 1 2 3, cut into {0 1} and {2 3}
//
//   {0 1}  decides, because it is half of the members and includes the first member
//   {2 3}  does not, even if 0 has ended, because 1 lives and may have decided with 0
//   {2 3}  decides when 0 and 1 have both ended: no living member could act on another decision
//
// The denominator is the number of original members. If ended members were subtracted from it, two
// quorums need not intersect, and both sides of a cut could decide.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::bootstrap {

struct Quorum {
  size_t members = 0;
  size_t present = 0;  // number of reachable members
  size_t ended = 0;  // number of members that have certainly ended (an unreachable one might live)
  bool has_first = false;

  // Counts the members' states as one member sees them. `has_gone`: unreachable or ended.
  template <typename HasGone, typename HasEnded>
  static Quorum of(std::span<const int> members, const HasGone& has_gone,
                   const HasEnded& has_ended) {
    Quorum quorum{.members = members.size()};
    for (const int rank : members) {
      if (!has_gone(rank)) ++quorum.present;
      if (has_gone(rank) && has_ended(rank)) ++quorum.ended;
    }
    quorum.has_first = !members.empty() && !has_gone(members.front());
    return quorum;
  }

  bool decides() const {
    if (present + ended == members) return true;
    return 2 * present == members ? has_first : 2 * present > members;
  }
};

}  // namespace tutti::bootstrap
