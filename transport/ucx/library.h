// UCX, loaded at run time. A program built here also runs on systems without UCX. A cluster's own
// UCX is used if there is one, because it supports the cluster's network cards.
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
                      call(am_data_release) call(request_free) call(request_check_status)          \
                          call(mem_map) call(mem_unmap) call(rkey_pack) call(rkey_buffer_release)  \
                              call(ep_rkey_unpack) call(rkey_destroy) call(put_nbx) call(get_nbx)  \
                                  call(ep_flush_nbx)

struct Library {
#define TUTTI_DECLARE(name) decltype(&::ucp_##name) name = nullptr;
  TUTTI_UCP_CALLS(TUTTI_DECLARE)
#undef TUTTI_DECLARE
  decltype(&::ucs_status_string) status_string = nullptr;
};

// Loads the library on first use. The library stays loaded for the life of the process. UCX is made
// quiet and installs no signal handlers, unless the environment asks for them (UCX_LOG_LEVEL,
// UCX_ERROR_SIGNALS). Thread-safe. Throws Error(unsupported) that says what to install.
const Library& library();

// Returns true if this host has a network card that accesses memory by itself.
bool has_network_card();

// Throws Error(system) that quotes UCX, unless `status` is UCS_OK.
void require_ok(ucs_status_t status, const char* call);

}  // namespace tutti::ucx
