// Watching a job from outside: whoever knows its token connects to one of its ranks, and asks that
// one what all of them do. The job is not disturbed: control threads answer (watchers.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/bootstrap/membership/sight.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

class JobWatch {
 public:
  // `key` is bootstrap_key() of the job's token. Throws Error: connection_lost or timeout where
  // nobody listens there, bootstrap where it is not this job, or one that is still starting.
  JobWatch(const SocketAddress& address, std::string_view key, const Deadline& deadline);

  // All ranks, in their order. Throws Error(connection_lost) when the rank that is asked, and with
  // it maybe the job, has ended; Error(timeout) when it says nothing.
  std::vector<RankSight> look();

 private:
  std::string place_;
  ByteStream stream_;  // encrypted where the job has a token
};

}  // namespace tutti::bootstrap
