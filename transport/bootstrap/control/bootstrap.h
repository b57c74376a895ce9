// The bootstrap: the protocol by which the ranks of a job find each other.
//
//     rank r -> rank 0     first connection: handshake, then its PeerInfo and settings ("arrival")
//     rank 0 -> rank r     the job's identity ("released"); then rank 0 closes this connection
//     parent -> its child  the control link: handshake, then the job's identity and the PeerInfo of
//                          all ranks ("table"), which the child forwards to its own children
//     child -> its parent  all ranks below it have the table ("linked"); leaves do not send it
//
// Rank 0's children are not released: their first connections become their control links. The
// other ranks are released when all have arrived. Once rank 0 holds Job::most_held of their first
// connections, it releases further ranks as soon as they arrive. A released rank waits at its own
// listener. If the job cannot start, rank 0 connects to that listener and sends the error
// ("failure"). A first connection that ends before its release counts as a death.
#pragma once

#include <functional>
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

// This rank's view of the job after the bootstrap.
struct Membership {
  std::shared_ptr<const std::vector<PeerInfo>> peers;  // shared by this process's ranks
  PeerInfo rank_zero;         // with the address that is known to work from here; replaces peers[0]
  std::string key;            // keys all later handshakes
  bool encrypted = false;     // true: the links are encrypted, because the job has a token
  int fanout = 32;            // fanout of the control tree, as configured on rank 0
  Acceptor acceptor;          // for data connections
  std::map<int, Link> links;  // rank 0: to its children; others: to their parent
  std::shared_ptr<const std::string> table;  // the frame for this rank's children
  // data connections that arrived before the table
  std::vector<std::pair<Hello, ByteStream>> early;
  LauncherPipe launcher;
  std::vector<RankEnd> ends;  // reported by the launcher so far
  InitStats stats;
};

// Returns the table of all ranks. Ranks of this process with the same `key` (Membership::key) share
// it: the first one obtains it from read(), which throws if the table cannot be read. Thread-safe.
std::shared_ptr<const std::vector<PeerInfo>> shared_table(
    const std::string& key, const std::function<std::vector<PeerInfo>()>& read);

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

// Take part in the bootstrap of a job of several ranks; block until all ranks have arrived.
// `unix_name`: the name of this rank's descriptor service. Throw Error(bootstrap), or
// Error(rank_died) if the launcher reports a death.
Membership gather(const Job& job, const std::string& unix_name);  // called on rank 0
Membership join(const Job& job, const std::string& unix_name);    // called on all other ranks

}  // namespace tutti::bootstrap
