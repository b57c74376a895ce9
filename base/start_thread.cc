#include "base/start_thread.h"

#include "base/text.h"

namespace tutti {

Error thread_shortage(std::string_view purpose, const std::system_error& error) {
  return system_error(
      cat("cannot start a thread for ", purpose), error.code().value(),
      {.cause =
           "a limit on threads or memory of the user, the container or the process is exhausted",
       .remedy = "raise the limit (ulimit -u, the control group's pids.max, ulimit -v), or start "
                 "fewer ranks or threads (OMP_NUM_THREADS, --threads)"});
}

}  // namespace tutti
