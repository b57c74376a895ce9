// UCX, loaded at run time: a program built here runs without it, and otherwise uses the cluster's
// own, which supports its network cards.
#pragma once

#include <ucp/api/ucp.h>

namespace tutti::ucx {

// The functions of UCX that are used, by name.
#define TUTTI_UCP_CALLS(call)                                                                      \
  call(config_read) call(config_release) call(init_version) call(cleanup) call(get_version_string) \
      call(context_print_info) call(worker_create) call(worker_destroy) call(worker_get_address)   \
          call(worker_release_address) call(worker_query) call(worker_get_efd) call(worker_arm)    \
              call(worker_progress) call(worker_set_am_recv_handler) call(ep_create)               \
                  call(ep_close_nbx) call(am_send_nbx) call(am_recv_data_nbx)                      \
                      call(am_data_release) call(request_free) call(request_check_status)

struct Library {
#define TUTTI_DECLARE(name) decltype(&::ucp_##name) name = nullptr;
  TUTTI_UCP_CALLS(TUTTI_DECLARE)
#undef TUTTI_DECLARE
  decltype(&::ucs_status_string) status_string = nullptr;
};

// Loads the library on first use; it stays loaded for the life of the process. It is quiet and
// installs no signal handlers, unless the environment asks for it (UCX_LOG_LEVEL,
// UCX_ERROR_SIGNALS). Thread-safe. Throws Error(unsupported) that says what to install.
const Library& library();

// Throws Error(system) that quotes UCX, unless `status` is UCS_OK.
void require_ok(ucs_status_t status, const char* call);

}  // namespace tutti::ucx
