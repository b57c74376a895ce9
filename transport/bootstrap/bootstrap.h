// How the ranks of a job find each other.
//
//     rank r -> rank 0   handshake, then its PeerInfo and settings ("arrival")
//     rank 0 -> rank r   once all are there: the job's identity and everybody's PeerInfo ("table"),
//                        or why there will be no job ("failure")
//     rank r -> parent   the control link; ranks whose parent is rank 0 keep the first connection,
//                        the others keep it until they have the link, and say so ("linked")
//
// A first connection that ends before that is a death.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "transport/bootstrap/acceptor.h"
#include "transport/bootstrap/control.h"
#include "transport/bootstrap/job.h"
#include "transport/bootstrap/launcher_pipe.h"
#include "transport/bootstrap/link.h"

namespace tutti::bootstrap {

// A rank's place in the job.
struct Membership {
  std::vector<PeerInfo> peers;
  std::string key;              // of all later handshakes
  int fanout = 32;              // rank 0's
  Acceptor acceptor;            // for control and data connections
  std::map<int, Link> links;    // of rank 0: to its children; of others: to their parent
  std::map<int, Link> joining;  // of rank 0: first connections of the ranks not yet linked
  LauncherPipe launcher;
  std::vector<RankEnd> ends;  // that the launcher has told already
};

// Blocks until everybody is there, for a job of several ranks. `unix_name` is the name of this
// rank's descriptor service. Throws Error(bootstrap), or rank_died when the launcher tells of a
// death.
Membership gather(const Job& job, const std::string& unix_name);  // rank 0
Membership join(const Job& job, const std::string& unix_name);    // the others

}  // namespace tutti::bootstrap
