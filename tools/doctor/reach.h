// Tests whether hosts reach each other as Tutti's ranks would: each host listens on the same
// addresses as ranks and connects to every other host. No privileges are needed. Clients without
// the nonce get no answer.
#pragma once

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "tools/doctor/facts.h"

namespace tutti::tool {

// Length in hexadecimal digits of the nonce, which is the secret that the hosts of one `tutti
// doctor` share.
inline constexpr size_t kNonceBytes = 32;

// Returns the numeric addresses on which ranks of this host would listen. If TUTTI_INTERFACE is
// set, they are its addresses. Otherwise it is the source address of packets to rank 0's host
// (`towards`) or, without a route there and on rank 0's host itself (empty `towards`),
// reachable_address(host). Throws Error if there is no such address.
std::vector<std::string> addresses_of_ranks(const std::string& host, const std::string& towards);

// Listens and answers in a separate thread while the object exists.
class Listeners {
 public:
  // Starts to listen on a port chosen by the system, or on `port` of the first address if given.
  // Throws Error if that fails.
  Listeners(const std::vector<std::string>& addresses, const std::vector<Interface>& interfaces,
            uint16_t port, std::string nonce);
  ~Listeners();
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  const std::vector<Rail>& rails() const { return rails_; }

 private:
  void serve();

  const std::string nonce_;
  std::vector<Rail> rails_;
  std::vector<Fd> tcp_;
  std::vector<Fd> udp_;
  Fd stop_;
  std::thread thread_;
};

// One rail of another host to which this host tries to connect.
struct Target {
  int host = 0;
  int rail = 0;
  Rail there;
  std::string own;  // source address; empty: chosen by the routes
};

// Tries all targets concurrently. Blocks for at most about 20 s per 32 targets. `from` is this
// host's index.
std::vector<Reach> try_all(int from, const std::vector<Target>& targets,
                           const std::vector<Interface>& interfaces, std::string_view nonce);

}  // namespace tutti::tool
