// Whether hosts reach each other the way Tutti's ranks would: each listens where they would, and
// tries every other. Needs no rights. Who does not know the nonce is not answered.
#pragma once

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "tools/doctor/facts.h"

namespace tutti::tool {

// Of hexadecimal digits; it takes the place of a secret among the hosts of one doctor.
inline constexpr size_t kNonceBytes = 32;

// The numeric addresses under which ranks on this host would listen: those of TUTTI_INTERFACE, else
// the one that routes to rank 0's host (`towards`), which itself takes one that `host` resolves to.
// Throws Error.
std::vector<std::string> addresses_of_ranks(const std::string& host, const std::string& towards);

// Listens and answers, in a thread of its own, until it is destroyed.
class Listeners {
 public:
  // On a port of the system's choice, or on `port` of the first address, if given. Throws Error.
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

// One of a host's rails, to be tried from here.
struct Target {
  int host = 0;
  int rail = 0;
  Rail there;
  std::string own;  // the address to use; empty: the one that routes there
};

// All at a time; takes some 20 s at most for each 32 of them. `from` is this host's index.
std::vector<Reach> try_all(int from, const std::vector<Target>& targets,
                           const std::vector<Interface>& interfaces, std::string_view nonce);

}  // namespace tutti::tool
