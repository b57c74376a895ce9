// Finds rank 0 from every other rank. Rank 0 may start later, and other programs may use its port.
#pragma once

#include <string>

#include "base/fd.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

// Formats "rank 0 at 10.0.0.1:29500".
std::string rank_zero_at(const SocketAddress& address);

struct RankZero {
  ByteStream socket;  // connection after the handshake
  std::string key;    // the bootstrap's key, which includes the token if rank 0 published one
};

// Searches until rank 0 answers. If the process that answers is another program, or belongs to
// another job or an earlier start of this one, the search continues. Throws Error(bootstrap) on
// timeout, and if rank 0 refuses this rank.
RankZero find_rank_zero(const Job& job, const Wait& wait);

}  // namespace tutti::bootstrap
