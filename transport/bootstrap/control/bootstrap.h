// How the ranks of a job find each other.
//
//     rank r -> rank 0     handshake, then its PeerInfo and settings ("arrival")
//     rank 0 -> rank r     the job's identity ("released"), and the end of this first connection
//     parent -> its child  the control link: handshake, then the job's identity and everybody's
//                          PeerInfo ("table"), which the child passes on to its own children
//     child -> its parent  all below it have the table ("linked"); leaves need not say it
//
// Rank 0's children are not released: their first connections become their control links. The
// others are when all have arrived, or as soon as rank 0 holds Job::most_held of them; from then
// on they wait at their own listeners, to which rank 0 comes, too, if there will be no job
// ("failure"). A first connection that ends before any of this is a death.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/launcher_pipe.h"
#include "transport/bootstrap/handshake/acceptor.h"
#include "transport/bootstrap/handshake/link.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

// A rank's place in the job.
struct Membership {
  std::vector<PeerInfo> peers;
  std::string key;            // of all later handshakes
  bool encrypted = false;     // the links: where there is a token
  int fanout = 32;            // rank 0's
  Acceptor acceptor;          // for data connections
  std::map<int, Link> links;  // of rank 0: to its children; of others: to their parent
  std::shared_ptr<const std::string> table;         // the frame, for this rank's children
  std::vector<std::pair<Hello, ByteStream>> early;  // data connections that came before the table
  LauncherPipe launcher;
  std::vector<RankEnd> ends;  // that the launcher has told already
  InitStats stats;
};

// Counts the three messages of a handshake, on either side.
inline void count_accepted(InitStats& stats) {
  stats.sent.add(sizeof(Challenge));
  stats.received.add(sizeof(Hello));
  stats.sent.add(sizeof(Verdict));
}
inline void count_connected(InitStats& stats) {
  stats.received.add(sizeof(Challenge));
  stats.sent.add(sizeof(Hello));
  stats.received.add(sizeof(Verdict));
}

// Blocks until everybody is there, for a job of several ranks. `unix_name` is the name of this
// rank's descriptor service. Throws Error(bootstrap), or rank_died when the launcher tells of a
// death.
Membership gather(const Job& job, const std::string& unix_name);  // rank 0
Membership join(const Job& job, const std::string& unix_name);    // the others

}  // namespace tutti::bootstrap
