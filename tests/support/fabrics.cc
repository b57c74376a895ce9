#include "tests/support/fabrics.h"

#include <cstdlib>

#include "base/error.h"
#include "transport/ofi/library.h"
#include "transport/ucx/library.h"

namespace tutti::testing {

// Disables UCX's hooks for freed memory under the thread sanitizer: they also run in threads that
// have left the sanitizer, and crash there.
std::string lacks(std::string_view transport) {
#ifdef __SANITIZE_THREAD__
  ::setenv("UCX_MEM_EVENTS", "n", 0);
#endif
  try {
    if (transport.ends_with("ucx")) ucx::library();
    if (transport.ends_with("ofi")) ofi::library();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> transports() {
  std::vector<std::string> found;
  for (const char* transport : {"shm", "tcp", "ucx", "ofi"}) {
    if (lacks(transport).empty()) found.emplace_back(transport);
  }
  return found;
}

}  // namespace tutti::testing

// After a failure, resources of a fabric's driver are kept (transport/fabric/provider.h) by
// pointers that the leak sanitizer does not see.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
const char* __lsan_default_suppressions() {
  // The last two are referenced by thread-local memory, which the option below excludes.
  return "leak:libucs.so\nleak:libfabric.so\nleak:_dlerror_run\nleak:_dl_exception_create";
}
// The sanitizer occasionally crashes on the thread-local memory of a kept driver's thread.
extern "C" const char* __lsan_default_options();  // NOLINT(bugprone-reserved-identifier)
const char* __lsan_default_options() { return "use_tls=0"; }

// A kept driver leaves UCX's thread running, which may look for work while the process exits and
// UCX destroys its table's lock. Our own code destroys no such lock.
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
const char* __tsan_default_suppressions() { return "race_top:pthread_rwlock_destroy"; }
