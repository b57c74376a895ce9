// libfabric's library, found at run time: a program built here runs where it is not installed, and
// takes the cluster's own (which knows its network cards) where it is.
#pragma once

#include <rdma/fabric.h>

namespace tutti::ofi {

// What has a name in the library; all else is reached through the objects that these make.
struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;
};

// The version of the interface that is asked for.
inline constexpr uint32_t kVersion = FI_VERSION(1, 17);

// Loads it on first use; it stays for the life of the process. Any thread. Throws
// Error(unsupported) that says what to install.
const Library& library();

// Throws Error(system) that quotes libfabric, unless `result` is 0 or more.
void require_ok(ssize_t result, const char* call);

}  // namespace tutti::ofi
