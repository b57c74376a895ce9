// Passes the descriptors of shared memory between the ranks of one host by SCM_RIGHTS. The service
// listens on a unix socket in the abstract namespace, which needs no file.
//
// A client must run as the same user, and prove that it knows the job's token. A request for a name
// that is not offered yet waits for the offer.
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

  // Offers a duplicate of the descriptor. Thread-safe. The caller must then wake the thread that
  // runs watch(), which serves the requests that wait for this name.
  void offer(const std::string& name, int fd);
  void withdraw(const std::string& name);

  void watch(PollSet& set);

 private:
  struct Request {
    Link link;
    std::string name;  // empty: not received yet
    bool done = false;
  };

  void read(Request& request);
  void serve(Request& request);

  Acceptor acceptor_;
  std::list<Request> requests_;
  std::mutex mutex_;
  std::map<std::string, Fd> offers_;
};

// Returns the error that explains the owner's death, or nullopt while it is not known.
using DeathOfOwner = std::function<std::optional<Error>()>;

// Fetches a descriptor from its owner's service. `hello` identifies this client; `whom` describes
// the owner in messages. Throws Error. If the owner has ended, and the cause of its death becomes
// known soon, the error states that cause.
Fd fetch_descriptor(const std::string& unix_name, const std::string& name, const Hello& hello,
                    const std::string& key, const std::string& whom, const DeathOfOwner& death,
                    const Deadline& deadline);

}  // namespace tutti::bootstrap
