#include "tests/support/fabrics.h"

#include <cstdlib>

#include "base/error.h"
#include "transport/ofi/library.h"
#include "transport/ucx/library.h"

namespace tutti::testing {

// The hooks by which UCX hears of memory that is freed run where a thread has left the thread
// sanitizer, and crash there.
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

// What a fabric's driver holds stays after a failure (transport/fabric/provider.h), where the leak
// sanitizer does not see who points to it.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
const char* __lsan_default_suppressions() {
  // The last two are what threads' own memory points to, which it is told below not to look at.
  return "leak:libucs.so\nleak:libfabric.so\nleak:_dlerror_run\nleak:_dl_exception_create";
}
// Now and then it crashes over the thread-local memory of the thread that a driver which was kept
// has.
extern "C" const char* __lsan_default_options();  // NOLINT(bugprone-reserved-identifier)
const char* __lsan_default_options() { return "use_tls=0"; }

// A driver that was kept leaves UCX's thread running, which may look for work while the process
// ends and UCX destroys the lock of its table. Nothing of ours destroys such a lock.
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
const char* __tsan_default_suppressions() { return "race_top:pthread_rwlock_destroy"; }
