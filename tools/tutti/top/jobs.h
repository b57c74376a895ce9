// Finds running jobs by the environments of their processes.
#pragma once

#include <string>
#include <vector>

#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

struct JobPlace {
  std::string name;  // address of the job's rendezvous, shown in messages: "localhost:29500"
  std::vector<bootstrap::SocketAddress>
      addresses;      // addresses of ranks; some may belong to other programs or stopped ranks
  std::string token;  // token of the job; empty: it has none
  std::string key;    // handshake key
  std::string who;    // description of the process that was found, for messages
};

// Returns the jobs of several ranks to which processes of this user on this host belong, with the
// addresses on which these processes listen.
std::vector<JobPlace> running_jobs();

// Finds a job. `job` is "HOST:PORT" of a rank, the rendezvous address of ranks on this host, a
// process id, or empty for the only job. The token for an address is this process's TUTTI_TOKEN, if
// set; otherwise the token of a process on this host that belongs to the job. Throws Error if there
// is no such job or, with an empty `job`, if there are several; the error lists them.
JobPlace find_running_job(const std::string& job);

}  // namespace tutti::tool
