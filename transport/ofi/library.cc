#include "transport/ofi/library.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tutti::ofi {

namespace {

Error absent(const std::string& what) {
  return Error(
      ErrorCode::unsupported, cat("libfabric is unusable: ", what),
      {.cause = "libfabric is not installed, or is older than 1.17",
       .remedy = "install libfabric (Debian and Ubuntu: apt-get install libfabric1), or add the "
                 "directory of the cluster's own to LD_LIBRARY_PATH; TUTTI_TRANSPORT=auto runs "
                 "without it"});
}

// Looks up the symbol version of the headers, because newer versions have another layout.
template <typename Call>
void find(void* handle, const char* name, const char* version, Call& call) {
  call = reinterpret_cast<Call>(::dlvsym(handle, name, version));
  if (call == nullptr) throw absent(cat("the library lacks ", name, " of ", version));
}

Library load() {
  void* const handle = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw absent(::dlerror());
  Library library;
  find(handle, "fi_getinfo", "FABRIC_1.3", library.getinfo);
  find(handle, "fi_freeinfo", "FABRIC_1.3", library.freeinfo);
  find(handle, "fi_dupinfo", "FABRIC_1.3", library.dupinfo);
  find(handle, "fi_fabric", "FABRIC_1.1", library.fabric);
  find(handle, "fi_strerror", "FABRIC_1.0", library.strerror);
  find(handle, "fi_version", "FABRIC_1.0", library.version);
  if (library.version() < kVersion) throw absent("the library is older than 1.17");
  return library;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

void require_ok(ssize_t result, const char* call) {
  if (result >= 0) return;
  throw Error(ErrorCode::system,
              cat("libfabric: ", call, ": ", library().strerror(static_cast<int>(-result))),
              {.cause = "libfabric finds no usable device, or a FI_ variable excludes it",
               .remedy = "run `tutti info` and `fi_info`; FI_LOG_LEVEL=warn makes libfabric report "
                         "more"});
}

}  // namespace tutti::ofi
