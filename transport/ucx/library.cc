#include "transport/ucx/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/text.h"

namespace tutti::ucx {

namespace {

Error absent(const std::string& what) {
  return Error(ErrorCode::unsupported, "UCX is unusable: " + what,
               {.cause = "UCX is not installed, or is older than 1.13",
                .remedy = "install UCX (Debian and Ubuntu: apt-get install libucx0), or add the "
                          "directory of the cluster's own to LD_LIBRARY_PATH; TUTTI_TRANSPORT=auto "
                          "runs without it"});
}

template <typename Call>
void find(void* handle, const char* name, Call& call) {
  call = reinterpret_cast<Call>(::dlsym(handle, name));
  if (call == nullptr) throw absent(cat("the library lacks ", name));
}

// Sets defaults that UCX reads when it is loaded. UCX would install handlers for crash signals, and
// log failures that Tutti reports as its own errors. Over TCP it would use put, which is slower
// than send, and completes only with the help of a reader that may be busy. When closing queue
// pairs, UCX 1.13 may consume two events of one card for the same queue pair (soft-RoCE) and abort
// the process; without these events UCX relies on the card's own order.
void choose_defaults() {
  ::setenv("UCX_ERROR_SIGNALS", "", 0);
  ::setenv("UCX_LOG_LEVEL", "fatal", 0);
  ::setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
  ::setenv("UCX_TCP_PUT_ENABLE", "n", 0);
  ::setenv("UCX_IB_ASYNC_EVENTS", "n", 0);
  // Without a network card a rendezvous only adds messages, and takes up to twice the time.
  if (!has_network_card()) ::setenv("UCX_RNDV_THRESH", "inf", 0);
}

Library load() {
  choose_defaults();
  void* const handle = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw absent(::dlerror());
  Library library;
#define TUTTI_FIND(name) find(handle, "ucp_" #name, library.name);
  TUTTI_UCP_CALLS(TUTTI_FIND)
#undef TUTTI_FIND
  find(handle, "ucs_status_string", library.status_string);
  return library;
}

}  // namespace

bool has_network_card() {
  std::error_code problem;
  const std::filesystem::directory_iterator cards("/sys/class/infiniband", problem);
  return !problem && cards != std::filesystem::directory_iterator();
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

void require_ok(ucs_status_t status, const char* call) {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::system, cat("UCX: ", call, ": ", library().status_string(status)),
              {.cause = "UCX finds no usable device, or a UCX_ variable excludes it",
               .remedy = "run `tutti info`; UCX_LOG_LEVEL=info makes UCX report more"});
}

}  // namespace tutti::ucx
