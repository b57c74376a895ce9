// Where a running job can be watched: found by its processes' environments.
#pragma once

#include <string>
#include <vector>

#include "transport/bootstrap/socket.h"

namespace tutti::tool {

struct JobPlace {
  std::string name;                                 // "localhost:29500", for people
  std::vector<bootstrap::SocketAddress> addresses;  // rank 0 listens on one of them
  std::string key;                                  // of the handshake
  std::string who;                                  // the process that was found, for people
};

// Jobs of several ranks that processes of this user on this host belong to, one entry each.
std::vector<JobPlace> running_jobs();

// `job`: "HOST:PORT", a process's number, or empty, for the only one there is. The token of an
// address is this process's own (TUTTI_TOKEN), where it is set, else that of a process on this host
// which belongs to that job. Throws Error(invalid_argument) that lists what there is.
JobPlace find_running_job(const std::string& job);

}  // namespace tutti::tool
