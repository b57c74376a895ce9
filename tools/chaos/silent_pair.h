// Two hosts between which no packet arrives, and nobody is told.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool::chaos {

// While this lives, each of two network namespaces sends packets for the other's IPv4 addresses to
// a hardware address that nobody has. No route is missing, no interface is down and no connection
// is reset: the same as a failed switch between the two.
class SilentPair {
 public:
  // Names of `ip netns`. Throws Error(system) where there are none, or they may not be changed, and
  // Error(invalid_argument) where one has no address.
  SilentPair(const std::string& one, const std::string& other);
  ~SilentPair();
  SilentPair(const SilentPair&) = delete;
  SilentPair& operator=(const SilentPair&) = delete;

  // Throws what the constructor would; changes nothing.
  static void require(const std::string& host);

 private:
  void let_talk();

  struct Direction {
    std::string from;
    std::vector<std::string> to;  // addresses
  };
  std::vector<Direction> directions_;
};

}  // namespace tutti::tool::chaos
