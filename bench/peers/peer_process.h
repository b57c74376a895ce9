// Another library's benchmark processes, run in turn with ours.
//
// A peer program is started once and then told over a socket what to time; between its turns its
// ranks block in read() and use no processor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::bench {

class PeerProcess {
 public:
  // `name`: "openmpi". `transport`: what it shall use, "shm" or "tcp". Throws Error(unsupported)
  // that says what to install when it is not on this machine.
  PeerProcess(const std::string& name, int ranks, const std::string& transport);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();

  const std::string& name() const { return name_; }
  // Times of the slowest rank in microseconds. all_reduce of float32, sum.
  std::vector<double> run(uint64_t bytes, int warm_up, int timed);

 private:
  void start(const std::vector<std::string>& command);
  std::string read_line(const Fd& socket, int timeout_ms);

  const std::string name_;
  const int ranks_;
  std::string socket_name_;
  Fd listener_;
  std::vector<Fd> sockets_;  // by rank
  pid_t pid_ = -1;
};

}  // namespace tutti::bench
