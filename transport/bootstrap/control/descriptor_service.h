// How ranks of one host get each other's shared memory: a listener in the abstract namespace of
// unix sockets (nothing in the file system), and SCM_RIGHTS.
//
// Whoever connects must be the same user and know the job's token. A request for a name that is not
// on offer yet waits for it.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "transport/bootstrap/handshake/acceptor.h"
#include "transport/bootstrap/handshake/link.h"
#include "transport/bootstrap/handshake/poll_set.h"

namespace tutti::bootstrap {

class DescriptorService {
 public:
  // Listens under `unix_name`.
  DescriptorService(const std::string& unix_name, int world_size, int rank);
  void set_session_key(const std::string& key) { acceptor_.set_session_key(key); }

  // From any thread. The descriptor is duplicated. Someone who waits for the name is served at the
  // next turn: wake the thread that runs watch().
  void offer(const std::string& name, int fd);
  void withdraw(const std::string& name);

  void watch(PollSet& set);

 private:
  struct Request {
    Link link;
    std::string name;  // empty: not said yet
    bool done = false;
  };

  void read(Request& request);
  void serve(Request& request);

  Acceptor acceptor_;
  std::list<Request> requests_;
  std::mutex mutex_;
  std::map<std::string, Fd> offers_;
};

// The error that tells of the owner's death, once that is known.
using DeathOfOwner = std::function<std::optional<Error>()>;

// The asking side. `hello` says who asks; `whom` is the owner for people. Throws Error: where the
// owner has ended, that of its death, if one is known soon.
Fd fetch_descriptor(const std::string& unix_name, const std::string& name, const Hello& hello,
                    const std::string& key, const std::string& whom, const DeathOfOwner& death,
                    const Deadline& deadline);

}  // namespace tutti::bootstrap
