// Another library's benchmark processes, run in turn with ours.
//
// A peer program is started once and then told over a socket what to time (peer_program.h); between
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
  // `transport`: what it shall use, "shm" or "tcp". Throws Error(unsupported) that says what to
  // install when it is not on this machine.
  PeerProcess(const Peer& peer, int ranks, const std::string& transport);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();

  const Peer& peer() const { return peer_; }
  // Times of the slowest rank in microseconds, of float32, sum. `count`: element_count(). The peer
  // has the collective.
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
