#include "transport/ucx/worker.h"

#include <utility>

#include "transport/ucx/library.h"

namespace tutti::ucx {

void Worker::Cleanup::operator()(ucp_context_h context) const { library().cleanup(context); }
void Worker::Cleanup::operator()(ucp_worker_h worker) const { library().worker_destroy(worker); }

Worker::Worker(bool rma) {
  const Library& ucp = library();
  ucp_config_t* config = nullptr;
  require_ok(ucp.config_read(nullptr, nullptr, &config), "ucp_config_read");
  const std::unique_ptr<ucp_config_t, decltype(ucp.config_release)> owner(config,
                                                                          ucp.config_release);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (rma) params.features |= UCP_FEATURE_RMA;
  ucp_context_h context = nullptr;
  require_ok(ucp.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context), "ucp_init");
  context_.reset(context);
  ucp_worker_params_t of_worker{};
  of_worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  of_worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  require_ok(ucp.worker_create(context, &of_worker, &worker), "ucp_worker_create");
  worker_.reset(worker);
  require_ok(ucp.worker_get_efd(worker, &event_fd_), "ucp_worker_get_efd");
}

std::string Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  require_ok(library().worker_get_address(get(), &address, &bytes), "ucp_worker_get_address");
  std::string text(reinterpret_cast<const char*>(address), bytes);
  library().worker_release_address(get(), address);
  return text;
}

bool Worker::arm() const { return library().worker_arm(get()) != UCS_ERR_BUSY; }

bool Worker::progress() const { return library().worker_progress(get()) != 0; }

void Worker::on_message(unsigned id, ucp_am_recv_callback_t handler, void* argument) const {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  // The handler receives whole messages, and may keep their data until they are read.
  param.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  param.cb = handler;
  param.arg = argument;
  require_ok(library().worker_set_am_recv_handler(get(), &param), "ucp_worker_set_am_recv_handler");
}

void Worker::abandon() {
  static_cast<void>(worker_.release());
  static_cast<void>(context_.release());
}

}  // namespace tutti::ucx
