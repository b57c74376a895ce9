// Observes a job from outside: a process that knows its token connects to one rank and queries the
// state of all ranks. Control threads answer, so the job is not disturbed (watchers.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/bootstrap/membership/rank_status.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

class JobWatch {
 public:
  // Connects to a rank. `key`: bootstrap_key() of the job's token. Throws Error(connection_lost) or
  // Error(timeout) if nobody listens there. Throws Error(bootstrap) if the listener does not belong
  // to this job, or if the job is starting or ending, or has too many observers.
  JobWatch(const SocketAddress& address, std::string_view key, const Deadline& deadline);

  // Returns the state of all ranks, in order. Throws Error(connection_lost) if the queried rank,
  // and possibly the job, has ended; Error(timeout) if it does not answer.
  std::vector<RankStatus> look();

 private:
  std::string place_;
  ByteStream stream_;  // encrypted if the job has a token
};

}  // namespace tutti::bootstrap
