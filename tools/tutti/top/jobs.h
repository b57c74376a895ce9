// Finds running jobs by the environments of their processes.
#pragma once

#include <string>
#include <vector>

#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

struct JobPlace {
  std::string name;  // where it meets: "localhost:29500", for people
  std::vector<bootstrap::SocketAddress>
      addresses;      // some may belong to other programs or stopped ranks
  std::string token;  // empty: the job has none
  std::string key;    // handshake key
  std::string who;    // the process that was found, for messages
};

// Returns the jobs of several ranks to which processes of this user on this host belong, with the
// addresses on which these processes listen.
std::vector<JobPlace> running_jobs();

// Finds a job. `job`: "HOST:PORT" of a rank, or the rendezvous address of ranks on this host; a
// process id; or empty for the only job. The token of an address is this process's TUTTI_TOKEN if
// set, else that of a process on this host which belongs to that job. Throws
// Error(invalid_argument) that lists the known jobs.
JobPlace find_running_job(const std::string& job);

}  // namespace tutti::tool
