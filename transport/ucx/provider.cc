#include "transport/ucx/provider.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/deadline.h"
#include "base/error.h"
#include "base/growing_pause.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/ucx/library.h"

namespace tutti::ucx {

namespace {

// What comes for a communicator that was destroyed comes soon after.
constexpr size_t kDetachedKnown = 1024;
constexpr std::chrono::milliseconds kLongestPause(1);
constexpr std::chrono::milliseconds kTimeToConnect(200);

uint64_t random_key() {
  uint64_t key = 0;
  if (::getrandom(&key, sizeof(key), 0) != sizeof(key)) throw system_error("getrandom", errno);
  return key;
}

uint64_t key_in(std::string_view address) {
  uint64_t key = 0;
  if (address.size() > sizeof(key)) std::memcpy(&key, address.data(), sizeof(key));
  return key;
}

}  // namespace

// The address is the key, and the worker's.
Provider::Provider()
    : process_(::getpid()),
      key_(random_key()),
      address_(std::string(reinterpret_cast<const char*>(&key_), sizeof(key_)) +
               worker_.address()) {
  worker_.on_message(kMessageId, on_message, this);
}

// UCX 1.13 may end a process that connects to one that is not there any more.
void Provider::join(Ranks ranks, WaitSet& wait_set) {
  ranks_ = std::move(ranks);
  wait_set_ = &wait_set;
  endpoints_.find_by([this](int to) {
    const std::string_view address = ranks_.address_of(to);
    if (address.size() < sizeof(uint64_t) || ranks_.gone(to)) return std::string_view();
    return address.substr(sizeof(uint64_t));
  });
}

bool Provider::forked() const { return ::getpid() != process_; }

Provider::~Provider() {
  if (forked()) {
    worker_.abandon();
    return;
  }
  const std::unique_lock lock = this->lock();
  const Deadline deadline = Deadline::after(kTimeToConnect);
  while (free_sends_.size() < sends_.size() && !deadline.passed()) worker_.progress();
  if (failed_ || free_sends_.size() < sends_.size()) {
    keep_for_good({std::move(worker_), std::move(slots_), std::move(sends_)});
    return;
  }
  for (const auto& [communicator, arrivals] : early_) {
    for (const Arrival& arrival : arrivals) drop(arrival);
  }
  endpoints_.cut_all();
}

// Within reach of whoever looks for leaks.
void Provider::keep_for_good(Remains remains) {
  static std::mutex mutex;
  static std::vector<Remains>& kept = *std::make_unique<std::vector<Remains>>().release();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(remains));
}

void Provider::leave() {
  const auto give_up = [&] {
    return patience_.count() == 0 ? Deadline::never() : Deadline::after(patience_);
  };
  Deadline silence = give_up();
  for (GrowingPause pause(kLongestPause);; pause.sleep()) {
    const std::unique_lock lock = this->lock();
    const size_t before = unacknowledged_.size();
    while (progress_locked()) pause.reset();
    std::erase_if(unacknowledged_, [&](const auto& end) {
      const bool broken = endpoints_.broken(end.second);
      failed_ |= broken;
      return broken || ranks_.gone(end.second);
    });
    if (unacknowledged_.empty()) return;
    if (unacknowledged_.size() < before) silence = give_up();
    if (!silence.passed()) continue;
    failed_ = true;
    log(LogLevel::warning,
        cat("rank ", unacknowledged_.begin()->second, " and ", unacknowledged_.size() - 1,
            " more have not taken what was sent before this rank left the job; likely cause: a "
            "rank is stuck, or makes fewer calls"));
    return;
  }
}

// ---- progress

bool Provider::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && progress_locked();
}

// Nothing is sent from within UCX's calls to here.
bool Provider::step() {
  const bool moved = worker_.progress();
  for (const auto& [communicator, rank] : std::exchange(to_acknowledge_, {})) {
    const Header answer{
        .communicator = communicator, .sender = ranks_.own, .kind = Kind::acknowledged};
    send(rank, answer, nullptr, nullptr, 0);
  }
  return moved;
}

// Another thread may sleep on what came.
bool Provider::progress_locked() {
  const bool moved = step();
  if (std::exchange(heard_, false)) wait_set_->wake();
  return moved;
}

// Whoever arms is about to sleep, and looks once more before. UCX may have work to do of which the
// descriptor does not tell.
void Provider::arm() {
  const std::unique_lock lock = this->lock();
  do {
    while (step()) {
    }
  } while (!worker_.arm());
  heard_ = false;
}

// ---- sending

Slot* Provider::take_slot() {
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->memory = std::make_unique_for_overwrite<std::byte[]>(kMessageBytes);
    free_slots_.push_back(slots_.back().get());
  }
  Slot* const slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Provider::give_back(Slot* slot) { free_slots_.push_back(slot); }

void Provider::send(int to, const Header& header, Slot* slot, Listener* from, size_t connection) {
  if (free_sends_.empty()) {
    sends_.push_back(std::make_unique<Send>());
    free_sends_.push_back(sends_.back().get());
  }
  Send& send = *free_sends_.back();
  free_sends_.pop_back();
  send = {this, header, slot, from, connection, to};
  send.header.key = key_in(ranks_.address_of(to));
  if (slot != nullptr) ++slot->sends;
  ucp_ep_h const endpoint = endpoints_.open(to);
  if (endpoint == nullptr) return finish(send, UCS_ERR_UNREACHABLE);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = &send;
  const size_t bytes = slot != nullptr ? header.message.bytes : 0;
  void* const request =
      library().am_send_nbx(endpoint, kMessageId, &send.header, sizeof(Header),
                            bytes > 0 ? slot->memory.get() : nullptr, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) finish(send, UCS_PTR_RAW_STATUS(request));
}

void Provider::on_sent(void* request, ucs_status_t status, void* send) {
  Send& sent = *static_cast<Send*>(send);
  sent.provider->heard_ = true;
  sent.provider->finish(sent, status);
  library().request_free(request);
}

void Provider::finish(Send& send, ucs_status_t status) {
  if (status != UCS_OK) endpoints_.mark_broken(send.to, status);
  if (send.slot != nullptr && --send.slot->sends == 0) give_back(send.slot);
  free_sends_.push_back(&send);
  if (send.from != nullptr) send.from->sent(send.connection, status == UCS_OK);
}

void Provider::send_end(int to, Header header) {
  header.kind = Kind::end;
  header.message.call = static_cast<uint32_t>(ranks_.own);
  unacknowledged_.insert({header.communicator, to});
  send(to, header, nullptr, nullptr, 0);
}

void Provider::forget_ends(uint64_t communicator) {
  std::erase_if(unacknowledged_, [&](const auto& end) { return end.first == communicator; });
  failed_ = true;
}

// ---- receiving

ucs_status_t Provider::on_message(void* provider, const void* header, size_t header_bytes,
                                  void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  Provider& self = *static_cast<Provider*>(provider);
  Arrival arrival;
  if (header_bytes != sizeof(Header)) return UCS_OK;
  std::memcpy(&arrival.header, header, sizeof(Header));
  if (arrival.header.key != self.key_) return UCS_OK;  // a stranger's
  const bool is_message = arrival.header.kind == Kind::message;
  if (bytes != (is_message ? arrival.header.message.bytes : 0)) return UCS_OK;
  arrival.rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (bytes > kMessageBytes) return UCS_OK;
  if (arrival.rendezvous || bytes > kSmallBytes) {
    arrival.data = data;
  } else if (bytes > 0) {
    std::memcpy(arrival.small.data(), data, bytes);
  }
  self.heard_ = true;
  return self.hear(arrival) && arrival.data != nullptr ? UCS_INPROGRESS : UCS_OK;
}

bool Provider::hear(const Arrival& arrival) {
  const uint64_t communicator = arrival.header.communicator;
  if (arrival.header.kind == Kind::acknowledged) {
    unacknowledged_.erase({communicator, arrival.header.sender});
    return false;
  }
  if (arrival.header.kind == Kind::end) {
    const auto from = static_cast<int>(arrival.header.message.call);
    if (from < 0 || from >= ranks_.count) return false;
    to_acknowledge_.emplace_back(communicator, from);
  }
  const auto listener = listeners_.find(communicator);
  if (listener != listeners_.end()) return listener->second->hear(arrival);
  if (std::ranges::find(detached_, communicator) != detached_.end()) return false;
  early_[communicator].push_back(arrival);
  return true;
}

void Provider::attach(uint64_t communicator, Listener& listener) {
  listeners_[communicator] = &listener;
  const auto early = early_.extract(communicator);
  if (early.empty()) return;
  for (const Arrival& arrival : early.mapped()) {
    if (!listener.hear(arrival)) drop(arrival);
  }
}

void Provider::detach(uint64_t communicator) {
  const auto listener = listeners_.find(communicator);
  if (listener == listeners_.end()) return;
  for (const auto& send : sends_) {
    if (send->from == listener->second) send->from = nullptr;
  }
  listeners_.erase(listener);
  detached_.push_back(communicator);
  if (detached_.size() > kDetachedKnown) detached_.pop_front();
}

void Provider::receive(const Arrival& arrival, std::byte* memory, std::atomic<Coming>& coming) {
  coming.store(Coming::under_way, std::memory_order_relaxed);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_received;
  param.user_data = &coming;
  void* const request = library().am_recv_data_nbx(worker_.get(), arrival.data, memory,
                                                   arrival.header.message.bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  coming.store(request == nullptr ? Coming::here : Coming::lost, std::memory_order_relaxed);
}

// The last to touch `coming`.
void Provider::on_received(void* request, ucs_status_t status, size_t, void* coming) {
  library().request_free(request);
  static_cast<std::atomic<Coming>*>(coming)->store(status == UCS_OK ? Coming::here : Coming::lost,
                                                   std::memory_order_release);
}

void Provider::drop(const Arrival& arrival) {
  if (arrival.data != nullptr) library().am_data_release(worker_.get(), arrival.data);
}

}  // namespace tutti::ucx
