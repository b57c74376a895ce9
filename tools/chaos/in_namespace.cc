#include "tools/chaos/in_namespace.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <thread>

#include "base/fd.h"
#include "base/text.h"

namespace tutti::tool::chaos {

std::string namespace_file(const std::string& name) { return cat("/run/netns/", name); }

// Runs `work` on a new thread, because setns() changes the network namespace of the calling thread
// only. The other threads of this process keep their namespaces.
int in_namespace(const std::string& name, const std::function<int()>& work) {
  int error = 0;
  std::thread([&] {
    if (!name.empty()) {
      const Fd there(::open(namespace_file(name).c_str(), O_RDONLY | O_CLOEXEC));
      if (!there || ::setns(there.get(), CLONE_NEWNET) != 0) {
        error = errno;
        return;
      }
    }
    error = work();
  }).join();
  return error;
}

}  // namespace tutti::tool::chaos
