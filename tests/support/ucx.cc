#include "tests/support/ucx.h"

#include <cstdlib>

#include "base/error.h"
#include "transport/ucx/library.h"

namespace tutti::testing {

// The hooks by which UCX hears of memory that is freed run where a thread has left the thread
// sanitizer, and crash there.
std::string lacks_ucx() {
#ifdef __SANITIZE_THREAD__
  ::setenv("UCX_MEM_EVENTS", "n", 0);
#endif
  try {
    ucx::library();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> transports() {
  if (!lacks_ucx().empty()) return {"shm", "tcp"};
  return {"shm", "tcp", "ucx"};
}

}  // namespace tutti::testing

// What UCX's worker holds stays after a failure (transport/ucx/provider.h), where the leak
// sanitizer does not see who points to it.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
const char* __lsan_default_suppressions() { return "leak:libucs.so"; }
