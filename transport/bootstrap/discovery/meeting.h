// How the other ranks find rank 0: where it listens, and how that is told and learned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/rendezvous.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

// Under which rank 0 tells where it listens: "10.0.0.1 29500", and the token where that is told
// there as well (Job::token_by_rendezvous).
inline constexpr const char* kRankZeroKey = "rank0";
std::string rank_zero_value(const SocketAddress& address, const std::string& token = {});
// Throws Error(bootstrap) for nonsense.
SocketAddress parse_rank_zero(const std::string& value);
// Empty where there is none.
std::string token_in_rank_zero(const std::string& value);

// The caller's or the file. Null where all know rank 0's address: there is nothing to tell.
std::shared_ptr<Rendezvous> rendezvous_of(const Job& job);

// The addresses, of one port, on each of the job's ports: all on the first, then all on the next.
std::vector<SocketAddress> on_all_ports(const Job& job, std::vector<SocketAddress> addresses);

// Rank 0's: the launcher's, or one of its own at the address that the job names. Throws
// Error(bootstrap).
Fd listen_as_rank_zero(const Job& job);

}  // namespace tutti::bootstrap
