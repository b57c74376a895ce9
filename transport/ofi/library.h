// libfabric, loaded at run time. A program built here also runs on systems without libfabric. A
// cluster's own libfabric is used if there is one, because it supports the cluster's network cards.
#pragma once

#include <rdma/fabric.h>

namespace tutti::ofi {

// The functions that the library exports by name; all others are reached through its objects.
struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;
};

// The requested API version.
inline constexpr uint32_t kVersion = FI_VERSION(1, 17);

// Loads the library on first use. The library stays loaded for the life of the process.
// Thread-safe. Throws Error(unsupported) that says what to install.
const Library& library();

// Throws Error(system) that quotes libfabric if `result` is negative. `call` is the name of the
// function.
void require_ok(ssize_t result, const char* call);

}  // namespace tutti::ofi
