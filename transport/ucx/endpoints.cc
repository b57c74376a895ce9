#include "transport/ucx/endpoints.h"

#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/text.h"
#include "transport/ucx/library.h"

namespace tutti::ucx {

namespace {

// To close what is broken takes no word from the other side.
constexpr std::chrono::seconds kTimeToClose(1);

}  // namespace

Endpoints::Peer& Endpoints::peer(int rank) {
  Peer& peer = peers_[rank];
  peer.owner = this;
  return peer;
}

ucp_ep_h Endpoints::open(int rank) {
  Peer& peer = this->peer(rank);
  if (peer.broken) return nullptr;
  if (peer.endpoint != nullptr) return peer.endpoint;
  const std::string_view address = address_of_(rank);
  if (address.empty()) {
    mark_broken(peer, "that rank is gone");
    return nullptr;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // Only so can an endpoint to a dead process be closed.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = on_error, .arg = &peer};
  const ucs_status_t status = library().ep_create(worker_.get(), &params, &peer.endpoint);
  if (status == UCS_OK) return peer.endpoint;
  peer.endpoint = nullptr;
  mark_broken(peer, cat("no connection: ", library().status_string(status)));
  return nullptr;
}

void Endpoints::on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  mark_broken(*static_cast<Peer*>(peer), library().status_string(status));
}

void Endpoints::mark_broken(int rank, ucs_status_t status) {
  mark_broken(peer(rank), library().status_string(status));
}

void Endpoints::mark_broken(Peer& peer, const std::string& why) {
  if (std::exchange(peer.broken, true)) return;
  peer.why = cat("UCX: ", why);
  peer.owner->breaks_.fetch_add(1, std::memory_order_release);
}

bool Endpoints::broken(int rank) const {
  const auto found = peers_.find(rank);
  return found != peers_.end() && found->second.broken;
}

std::string Endpoints::why(int rank) const {
  const auto found = peers_.find(rank);
  return found != peers_.end() ? found->second.why : "";
}

// ---- closing

ucs_status_ptr_t Endpoints::begin_to_close(Peer& peer) const {
  if (peer.endpoint == nullptr) return nullptr;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  return library().ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param);
}

void Endpoints::finish_closing(ucs_status_ptr_t request) const {
  if (!UCS_PTR_IS_PTR(request)) return;
  const Deadline deadline = Deadline::after(kTimeToClose);
  while (library().request_check_status(request) == UCS_INPROGRESS && !deadline.passed()) {
    worker_.progress();
  }
  library().request_free(request);
}

void Endpoints::cut(int rank) {
  Peer& peer = this->peer(rank);
  mark_broken(peer, "the connection was cut to end a call that was aborted");
  finish_closing(begin_to_close(peer));
}

void Endpoints::cut_all() {
  std::vector<ucs_status_ptr_t> requests;
  for (auto& [rank, peer] : peers_) {
    mark_broken(peer, "this rank is leaving the job");
    requests.push_back(begin_to_close(peer));
  }
  for (ucs_status_ptr_t request : requests) finish_closing(request);
}

}  // namespace tutti::ucx
