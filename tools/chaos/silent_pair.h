// Drops packets between two hosts silently.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool::chaos {

// While the object exists, each of two network namespaces sends packets for the other's IPv4
// addresses to an unused hardware address. Routes, interfaces and connections stay up, as after the
// failure of a switch between the two.
class SilentPair {
 public:
  // Starts dropping packets. `one`, `other`: names of `ip netns`. Throws Error(system) if one does
  // not exist or cannot be changed, and Error(invalid_argument) if one has no address.
  SilentPair(const std::string& one, const std::string& other);
  ~SilentPair();
  SilentPair(const SilentPair&) = delete;
  SilentPair& operator=(const SilentPair&) = delete;

  // Throws the errors with which the constructor would fail on this host, without changing
  // anything.
  static void require(const std::string& host);

 private:
  void resume_traffic();

  struct Direction {
    std::string from;
    std::vector<std::string> to;  // IPv4 addresses of the other host
  };
  std::vector<Direction> directions_;
};

}  // namespace tutti::tool::chaos
