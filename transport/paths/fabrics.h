// The fabrics besides shared memory and TCP that this machine has, for people.
#pragma once

#include <string>
#include <vector>

namespace tutti {

struct Fabric {
  std::string name;                  // as in TUTTI_TRANSPORT
  std::string problem;               // empty: usable
  std::string version;               // of its library
  std::vector<std::string> devices;  // as the library calls them
};

// Loads their libraries, which takes some 50 ms.
std::vector<Fabric> probe_fabrics();

}  // namespace tutti
