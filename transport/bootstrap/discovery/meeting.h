// Publishes and finds rank 0's address.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/rendezvous.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

// The key under which rank 0 publishes its address: "10.0.0.1 29500", followed by the token if
// Job::token_by_rendezvous.
inline constexpr const char* kRankZeroKey = "rank0";
std::string rank_zero_value(const SocketAddress& address, const std::string& token = {});
// Parses the address in a value of rank_zero_value(). Throws Error(bootstrap) for malformed text.
SocketAddress parse_rank_zero(const std::string& value);
// Returns the token in a value of rank_zero_value(); empty if there is none.
std::string token_in_rank_zero(const std::string& value);

// Returns job.rendezvous, or a rendezvous in the file job.rendezvous_file. Returns null if neither
// is set: all ranks know rank 0's address.
std::shared_ptr<Rendezvous> rendezvous_of(const Job& job);

// Returns `addresses` with each of the job's ports: all addresses on the first port, then all on
// the next.
std::vector<SocketAddress> on_all_ports(const Job& job, std::vector<SocketAddress> addresses);

// Returns rank 0's listener: the launcher's, or a new one at the job's address. Throws
// Error(bootstrap).
Fd listen_as_rank_zero(const Job& job);

}  // namespace tutti::bootstrap
