// Where a running job can be watched: found by its processes' environments.
#pragma once

#include <string>
#include <vector>

#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

struct JobPlace {
  std::string name;  // where it meets: "localhost:29500", for people
  std::vector<bootstrap::SocketAddress>
      addresses;      // some may be no rank's, or of one that is stopped
  std::string token;  // empty: the job has none
  std::string key;    // of the handshake
  std::string who;    // the process that was found, for people
};

// Jobs of several ranks that processes of this user on this host belong to, one entry each, with
// the addresses where these processes listen.
std::vector<JobPlace> running_jobs();

// `job`: "HOST:PORT" of a rank, or where ranks on this host were told to meet; a process's number;
// or empty, for the only one there is. The token of an address is this process's own (TUTTI_TOKEN),
// where it is set, else that of a process on this host which belongs to that job. Throws
// Error(invalid_argument) that lists what there is.
JobPlace find_running_job(const std::string& job);

}  // namespace tutti::tool
