// Runs another library's benchmark processes, which are timed in alternation with Tutti.
//
// A peer program is started once and receives its orders over a socket (peer_program.h). Between
// its turns its ranks block in read() and use no processor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bench/peers/peer.h"

namespace tutti::bench {

class PeerProcess {
 public:
  // Starts the peer's ranks. `transport`: "shm" or "tcp". If the peer is missing on this machine,
  // throws Error(unsupported) that names the packages to install.
  PeerProcess(const Peer& peer, int ranks, const std::string& transport);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();

  const Peer& peer() const { return peer_; }
  // Times a collective (f32, sum). Returns the times of the slowest rank in microseconds. `count`:
  // element_count(). The peer must support the collective.
  std::vector<double> run(Collective collective, uint64_t count, int warm_up, int timed);

 private:
  void listen();
  void start(const std::vector<std::string>& command);
  void accept_rank(int arrived);
  std::string read_line(const Fd& socket, int timeout_ms) const;

  const Peer& peer_;
  const int ranks_;
  const std::string socket_name_;
  Fd listener_;
  std::vector<Fd> sockets_;  // by rank
  pid_t pid_ = -1;
  Fd pidfd_;
};

}  // namespace tutti::bench
