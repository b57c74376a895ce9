// Assigns roles to ranks: either the last ranks only serve and the others compute, or every rank
// does both.
//
//   ps      rank 0 1 2 3          ps:1    rank 0 1 2  3
//           computes x 4                  computes x 3
//           serves   x 4                              serves
#pragma once

#include <algorithm>

#include "training/parallel/sync_options.h"

namespace tutti::training {

struct Roles {
  int ranks = 1;
  int apart = 0;  // number of servers that do not compute

  int workers() const { return ranks - apart; }
  int servers() const { return apart == 0 ? ranks : apart; }
  int first_server() const { return ranks - servers(); }
  bool works(int rank) const { return rank < workers(); }
  bool serves(int rank) const { return rank >= first_server(); }
};

// Returns the roles of `ranks` ranks. If `options` have too many servers, which a replica rejects
// later, one rank still computes.
inline Roles roles_of(const SyncOptions& options, int ranks) {
  return {ranks, options.has_servers() ? std::clamp(options.servers, 0, ranks - 1) : 0};
}

}  // namespace tutti::training
