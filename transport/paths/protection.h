// Describes which traffic of a job others can read, and which corruption is detected.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

struct Protection {
  std::string data;     // protection of data over TCP
  std::string control;  // protection of the control channel
  std::string fabrics;  // protection of data over UCX and libfabric
};

// Describes the protection that the values of TUTTI_ENCRYPT and TUTTI_INTEGRITY give.
Protection describe_protection(std::string_view encrypt, std::string_view integrity);

}  // namespace tutti
