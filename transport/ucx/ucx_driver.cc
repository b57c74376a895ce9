#include "transport/ucx/ucx_driver.h"

#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/text.h"
#include "transport/ucx/library.h"

namespace tutti::ucx {

using fabric::Arrival;
using fabric::Header;
using fabric::RendezvousState;
using fabric::Send;

namespace {

constexpr unsigned kMessageId = 0;  // id of Tutti's active messages
// Time for closing endpoints. Closing a broken one does not need the other side.
constexpr std::chrono::seconds kTimeToClose(1);

}  // namespace

UcxDriver::UcxDriver(fabric::Rma rma)
    : accesses_(rma == fabric::Rma::on || (rma == fabric::Rma::automatic && has_network_card())),
      worker_(accesses_) {
  worker_.on_message(kMessageId, on_message, this);
}

UcxDriver::~UcxDriver() {
  if (abandoned_) return;
  for (const auto& [id, memory] : exposed_) library().mem_unmap(worker_.context(), memory);
}

// ---- sending

ucp_ep_h UcxDriver::open(int rank) {
  Peer& peer = peers_[rank];
  peer.driver = this;
  peer.rank = rank;
  if (peer.broken) return nullptr;
  if (peer.endpoint != nullptr) return peer.endpoint;
  const std::string_view address = ranks_.address_of(rank);
  if (address.empty()) {
    mark_broken(peer, "that rank is gone");
    return nullptr;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // This mode is required for closing an endpoint to a dead process.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = on_error, .arg = &peer};
  const ucs_status_t status = library().ep_create(worker_.get(), &params, &peer.endpoint);
  if (status == UCS_OK) return peer.endpoint;
  peer.endpoint = nullptr;
  mark_broken(peer, cat("no connection: ", library().status_string(status)));
  return nullptr;
}

void UcxDriver::send(Send& send) {
  if (free_.empty()) free_.push_back(&in_flight_.emplace_back(InFlight{this, nullptr}));
  InFlight& in_flight = *free_.back();
  free_.pop_back();
  in_flight.send = &send;
  ucp_ep_h const endpoint = open(send.to);
  if (endpoint == nullptr) return end(in_flight, UCS_ERR_UNREACHABLE);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = &in_flight;
  void* const request =
      library().am_send_nbx(endpoint, kMessageId, &send.header, sizeof(Header),
                            send.bytes > 0 ? send.payload : nullptr, send.bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) end(in_flight, UCS_PTR_RAW_STATUS(request));
}

void UcxDriver::on_sent(void* request, ucs_status_t status, void* in_flight) {
  library().request_free(request);
  auto& of = *static_cast<InFlight*>(in_flight);
  of.driver->end(of, status);
}

void UcxDriver::end(InFlight& in_flight, ucs_status_t status) {
  Send& send = *std::exchange(in_flight.send, nullptr);
  free_.push_back(&in_flight);
  if (status != UCS_OK) mark_broken(peers_[send.to], library().status_string(status));
  events().through(send, status == UCS_OK);
}

// ---- receiving

ucs_status_t UcxDriver::on_message(void* driver, const void* header, size_t header_bytes,
                                   void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  fabric::Events& events = static_cast<UcxDriver*>(driver)->events();
  Arrival arrival;
  if (header_bytes != sizeof(Header)) return UCS_OK;
  std::memcpy(&arrival.header, header, sizeof(Header));
  if (!events.is_ours(arrival.header)) return UCS_OK;  // the message is not from this job
  const bool is_message = arrival.header.kind == fabric::Kind::message;
  if (bytes != (is_message ? arrival.header.message.bytes : 0)) return UCS_OK;
  if (bytes > fabric::kMessageBytes) return UCS_OK;
  arrival.rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (arrival.rendezvous || bytes > fabric::kSmallBytes) {
    arrival.data = data;
  } else if (bytes > 0) {
    std::memcpy(arrival.small.data(), data, bytes);
  }
  return events.arrived(arrival) && arrival.data != nullptr ? UCS_INPROGRESS : UCS_OK;
}

void UcxDriver::receive(const Arrival& arrival, std::byte* memory,
                        std::atomic<RendezvousState>& coming) {
  coming.store(RendezvousState::in_flight, std::memory_order_relaxed);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_received;
  param.user_data = &coming;
  void* const request = library().am_recv_data_nbx(worker_.get(), arrival.data, memory,
                                                   arrival.header.message.bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  coming.store(request == nullptr ? RendezvousState::here : RendezvousState::lost,
               std::memory_order_relaxed);
}

// Completes a receive. It accesses `coming` last, because the receiver may then free it.
void UcxDriver::on_received(void* request, ucs_status_t status, size_t, void* coming) {
  library().request_free(request);
  static_cast<std::atomic<RendezvousState>*>(coming)->store(
      status == UCS_OK ? RendezvousState::here : RendezvousState::lost, std::memory_order_release);
}

void UcxDriver::drop(const Arrival& arrival) {
  library().am_data_release(worker_.get(), arrival.data);
}

// ---- remote memory access

struct UcxDriver::Foreign final : fabric::Remote {
  Foreign(UcxDriver& driver, uint64_t address, ucp_rkey_h key)
      : driver(driver), address(address), key(key) {}
  ~Foreign() override { library().rkey_destroy(key); }
  UcxDriver& driver;
  const uint64_t address;  // address of the memory's beginning
  ucp_rkey_h const key;
};

// Exposes memory. The key consists of the memory's address and UCX's own key.
UcxDriver::Exposed UcxDriver::expose(std::span<std::byte> memory) {
  if (!accesses_) return {};
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h mapped = nullptr;
  if (library().mem_map(worker_.context(), &params, &mapped) != UCS_OK) return {};
  void* packed = nullptr;
  size_t bytes = 0;
  if (library().rkey_pack(worker_.context(), mapped, &packed, &bytes) != UCS_OK) {
    library().mem_unmap(worker_.context(), mapped);
    return {};
  }
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  std::string key(reinterpret_cast<const char*>(&address), sizeof(address));
  key.append(static_cast<const char*>(packed), bytes);
  library().rkey_buffer_release(packed);
  exposed_.emplace(next_exposed_, mapped);
  return {next_exposed_++, std::move(key)};
}

void UcxDriver::conceal(uint64_t id) {
  const auto found = exposed_.find(id);
  if (found == exposed_.end()) return;
  library().mem_unmap(worker_.context(), found->second);
  exposed_.erase(found);
}

std::unique_ptr<fabric::Remote> UcxDriver::reach(int rank, std::string_view key) {
  uint64_t address = 0;
  if (!accesses_ || key.size() <= sizeof(address)) return nullptr;
  ucp_ep_h const endpoint = open(rank);
  ucp_rkey_h unpacked = nullptr;
  std::memcpy(&address, key.data(), sizeof(address));
  if (endpoint == nullptr ||
      library().ep_rkey_unpack(endpoint, key.data() + sizeof(address), &unpacked) != UCS_OK) {
    return nullptr;
  }
  return std::make_unique<Foreign>(*this, address, unpacked);
}

void UcxDriver::access(fabric::Access& access) {
  const auto& there = static_cast<const Foreign&>(*access.remote);
  ucp_ep_h const endpoint = open(access.rank);
  if (endpoint == nullptr) return events().accessed(access, false);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_accessed;
  param.user_data = &access;
  void* request = nullptr;
  if (access.writes) {
    ucp_request_param_t of_put = param;
    of_put.cb.send = on_put;
    request = library().put_nbx(endpoint, access.memory, access.bytes,
                                there.address + access.offset, there.key, &of_put);
    if (!UCS_PTR_IS_ERR(request)) request = library().ep_flush_nbx(endpoint, &param);
  } else {
    request = library().get_nbx(endpoint, access.memory, access.bytes,
                                there.address + access.offset, there.key, &param);
  }
  if (UCS_PTR_IS_PTR(request)) return;
  const ucs_status_t status = UCS_PTR_RAW_STATUS(request);
  if (status != UCS_OK) mark_broken(peers_[access.rank], library().status_string(status));
  events().accessed(access, status == UCS_OK);
}

void UcxDriver::on_put(void* request, ucs_status_t, void*) { library().request_free(request); }

void UcxDriver::on_accessed(void* request, ucs_status_t status, void* access) {
  library().request_free(request);
  auto& of = *static_cast<fabric::Access*>(access);
  UcxDriver& driver = static_cast<Foreign&>(*of.remote).driver;
  if (status != UCS_OK) driver.mark_broken(driver.peers_[of.rank], library().status_string(status));
  driver.events().accessed(of, status == UCS_OK);
}

// ---- breaking

void UcxDriver::on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& broken = *static_cast<Peer*>(peer);
  broken.driver->mark_broken(broken, library().status_string(status));
}

void UcxDriver::mark_broken(Peer& peer, const std::string& why) {
  peer.broken = true;
  events().broke(peer.rank, why);
}

ucs_status_ptr_t UcxDriver::begin_to_close(Peer& peer) const {
  if (peer.endpoint == nullptr) return nullptr;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  return library().ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param);
}

void UcxDriver::finish_closing(ucs_status_ptr_t request) const {
  if (!UCS_PTR_IS_PTR(request)) return;
  const Deadline deadline = Deadline::after(kTimeToClose);
  while (library().request_check_status(request) == UCS_INPROGRESS && !deadline.passed()) {
    worker_.progress();
  }
  library().request_free(request);
}

void UcxDriver::cut(int rank) {
  // UCX creates an endpoint also for a rank that has only sent to this one.
  static_cast<void>(open(rank));
  Peer& peer = peers_[rank];
  mark_broken(peer, "the connection was cut to end a call that was aborted");
  finish_closing(begin_to_close(peer));
}

void UcxDriver::cut_all() {
  std::vector<ucs_status_ptr_t> requests;
  for (auto& [rank, peer] : peers_) {
    mark_broken(peer, "this rank is leaving the job");
    requests.push_back(begin_to_close(peer));
  }
  for (ucs_status_ptr_t request : requests) finish_closing(request);
}

}  // namespace tutti::ucx
