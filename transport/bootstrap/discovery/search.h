// How every rank but 0 finds rank 0, which may be started later, and whose port others may have.
#pragma once

#include <string>

#include "base/fd.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

// "rank 0 at 10.0.0.1:29500"
std::string rank_zero_at(const SocketAddress& address);

struct RankZero {
  ByteStream socket;  // on which the hands have been shaken
  std::string key;    // of the bootstrap: rank 0 may be the one who tells the token
};

// Looks until rank 0 answers. Somebody else who answers in its place (another program, another job,
// an earlier start of this one) may leave: the search goes on. Throws Error(bootstrap) when the
// time is up, and when rank 0 refuses this rank.
RankZero find_rank_zero(const Job& job, const Wait& wait);

}  // namespace tutti::bootstrap
