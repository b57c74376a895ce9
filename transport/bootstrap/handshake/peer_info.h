// Identity and listening addresses of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topology/domain.h"

namespace tutti {

struct RailAddress {
  std::string address;  // numeric address
  uint16_t port = 0;
};

// Describes one rank to the others. After the bootstrap every rank has a table with an entry per
// rank.
struct PeerInfo {
  std::string host;     // name, for messages
  std::string host_id;  // equal for ranks that can share memory
  int64_t pid = 0;
  std::string address;  // numeric address of its listener
  uint16_t port = 0;
  // Listeners for data on further interfaces (Job::more_interfaces): rail 1 and so on. Rail 0 is
  // `address`.
  std::vector<RailAddress> more_rails;
  std::string unix_name;  // abstract unix socket of its descriptor service
  std::string note;       // see Job::note
  std::string fabric;     // see Job::fabric
  Domain domain;          // Job::domain; comparable among ranks of one host
  std::string rack;       // see Job::rack

  size_t rails() const { return 1 + more_rails.size(); }
};

}  // namespace tutti
