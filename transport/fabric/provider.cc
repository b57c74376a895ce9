#include "transport/fabric/provider.h"

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

namespace tutti::fabric {

namespace {

// Number of destroyed communicators that are remembered. Messages for them arrive soon after the
// destruction.
constexpr size_t kDetachedKnown = 1024;
constexpr std::chrono::milliseconds kLongestPause(1);
constexpr std::chrono::milliseconds kTimeToConnect(200);
// Upper bound of a sleep if no descriptor wakes it; some libfabric providers have none.
constexpr std::chrono::microseconds kLongestSleep(50);

uint64_t random_key() {
  uint64_t key = 0;
  if (::getrandom(&key, sizeof(key), 0) != sizeof(key)) throw system_error("getrandom", errno);
  return key;
}

}  // namespace

// Starts a provider. Its address is the key, followed by the driver's address.
Provider::Provider(std::unique_ptr<Driver> driver)
    : process_(::getpid()),
      key_(random_key()),
      driver_(std::move(driver)),
      address_(std::string(reinterpret_cast<const char*>(&key_), sizeof(key_)) +
               driver_->address()) {
  driver_->tell(*this);
}

// Joins the job. Ranks known to be gone get no address, because UCX 1.13 may abort a process that
// connects to an exited one.
void Provider::join(Ranks ranks, WaitSet& wait_set) {
  ranks_ = std::move(ranks);
  wait_set_ = &wait_set;
  const auto address_of = [this](int to) {
    const std::string_view address = ranks_.address_of(to);
    if (address.size() < sizeof(uint64_t) || ranks_.gone(to)) return std::string_view();
    return address.substr(sizeof(uint64_t));
  };
  driver_->join({.own = ranks_.own, .count = ranks_.count, .address_of = address_of});
}

bool Provider::forked() const { return ::getpid() != process_; }

Provider::~Provider() {
  if (forked()) {
    driver_->abandon();
    return;
  }
  const std::unique_lock lock = this->lock();
  // The source of the addresses no longer exists.
  ranks_.address_of = [](int) { return std::string_view(); };
  ranks_.gone = [](int) { return true; };
  const Deadline deadline = Deadline::after(kTimeToConnect);
  const auto is_idle = [this] {
    return free_sends_.size() == sends_.size() && free_accesses_.size() == accesses_.size();
  };
  while (!is_idle() && !deadline.passed()) driver_->progress();
  if (failed_ || !is_idle()) {
    keep_for_good({std::move(driver_), std::move(slots_), std::move(sends_), std::move(accesses_),
                   std::move(kept_memory_)});
    return;
  }
  for (const auto& [communicator, arrivals] : early_) {
    for (const Arrival& arrival : arrivals) drop(arrival);
  }
  driver_->cut_all();
}

// State that is kept until the process ends, in a place that leak checkers can reach. The driver is
// never called again, so it reports no events.
struct Provider::Kept {
  std::mutex mutex;
  std::vector<KeptAlive> kept_alive;

  static Kept& of_process() {
    static Kept& kept = *std::make_unique<Kept>().release();
    return kept;
  }
};

void Provider::keep_for_good(KeptAlive kept_alive) {
  Kept& kept = Kept::of_process();
  const std::lock_guard lock(kept.mutex);
  kept.kept_alive.push_back(std::move(kept_alive));
}

size_t Provider::drivers_kept() {
  Kept& kept = Kept::of_process();
  const std::lock_guard lock(kept.mutex);
  return kept.kept_alive.size();
}

void Provider::leave() {
  const auto give_up = [&] {
    return send_timeout_.count() == 0 ? Deadline::never() : Deadline::after(send_timeout_);
  };
  Deadline silence = give_up();
  for (GrowingPause pause(kLongestPause);; pause.sleep()) {
    const std::unique_lock lock = this->lock();
    const size_t before = unacknowledged_.size();
    while (progress_locked()) pause.reset();
    std::erase_if(unacknowledged_, [&](const auto& end) {
      const bool is_broken = broken(end.second);
      failed_ |= is_broken;
      return is_broken || ranks_.gone(end.second);
    });
    if (unacknowledged_.empty()) return;
    if (unacknowledged_.size() < before) silence = give_up();
    if (!silence.passed()) continue;
    failed_ = true;
    log(LogLevel::warning,
        cat("rank ", unacknowledged_.begin()->second, " and ", unacknowledged_.size() - 1,
            " more have not received everything that this rank sent before it left the job; likely "
            "cause: a rank is stuck, or executes fewer calls"));
    return;
  }
}

// ---- progress

bool Provider::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && progress_locked();
}

// Makes progress, then acknowledges the ends that have arrived. Nothing is sent from within the
// driver's callbacks.
bool Provider::step() {
  const bool moved = driver_->progress();
  for (const auto& [communicator, rank] : std::exchange(to_acknowledge_, {})) {
    const Header answer{
        .communicator = communicator, .sender = ranks_.own, .kind = Kind::acknowledged};
    send(rank, answer, nullptr, nullptr, 0);
  }
  return moved;
}

// Makes progress, and wakes a thread that sleeps until messages arrive or sends complete.
bool Provider::progress_locked() {
  const bool moved = step();
  if (moved) wait_set_->wake();
  return moved;
}

// Prepares a sleep: makes progress until the driver is armed, because the driver may have work that
// its descriptor does not report. The calling thread checks once more before it sleeps.
void Provider::arm() {
  const std::unique_lock lock = this->lock();
  do {
    while (step()) {
    }
  } while (!driver_->arm());
}

void Provider::watch(WaitSet& set) {
  const std::unique_lock lock = this->lock();
  if (driver_->event_fd() >= 0) set.add(driver_->event_fd(), POLLIN);
  if (driver_->needs_polling()) set.no_longer_than(kLongestSleep);
}

// ---- sending

Slot* Provider::take_slot() {
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    Slot& slot = *slots_.back();
    slot.own = std::make_unique_for_overwrite<std::byte[]>(kMessageBytes);
    slot.memory = slot.own.get();
    driver_->will_use({slot.memory, kMessageBytes});
    free_slots_.push_back(&slot);
  }
  Slot* const slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Provider::give_back(Slot* slot) {
  if (slot->own != nullptr && !slot->spoiled) free_slots_.push_back(slot);
}

void Provider::send(int to, const Header& header, Slot* slot, Listener* from, size_t connection) {
  if (free_sends_.empty()) {
    sends_.push_back(std::make_unique<Sending>());
    free_sends_.push_back(sends_.back().get());
  }
  Sending& send = *free_sends_.back();
  free_sends_.pop_back();
  send.header = header;
  send.header.key = key_of(to);
  send.payload = slot != nullptr ? slot->memory : nullptr;
  send.bytes = slot != nullptr ? header.message.bytes : 0;
  send.to = to;
  send.slot = slot;
  send.from = from;
  send.connection = connection;
  if (slot != nullptr) ++slot->sends;
  if (broken(to)) return through(send, false);
  driver_->send(send);
}

void Provider::through(Send& send, bool well) {
  auto& sending = static_cast<Sending&>(send);
  if (sending.slot != nullptr) {
    sending.slot->spoiled |= !well;
    if (--sending.slot->sends == 0) give_back(sending.slot);
  }
  free_sends_.push_back(&sending);
  if (sending.from != nullptr) sending.from->sent(sending.connection, well);
}

// ---- remote memory access

Provider::Accessing* Provider::take_access() {
  if (free_accesses_.empty()) {
    accesses_.push_back(std::make_unique<Accessing>());
    free_accesses_.push_back(accesses_.back().get());
  }
  Accessing* const access = free_accesses_.back();
  free_accesses_.pop_back();
  access->slot = take_slot();
  access->memory = access->slot->memory;
  access->given_up = false;
  return access;
}

void Provider::begin_access(Accessing& access) {
  access.coming.store(RendezvousState::in_flight, std::memory_order_relaxed);
  if (broken(access.rank)) return accessed(access, false);
  driver_->access(access);
}

void Provider::accessed(Access& access, bool well) {
  auto& accessing = static_cast<Accessing&>(access);
  accessing.slot->spoiled |= !well;
  accessing.coming.store(well ? RendezvousState::here : RendezvousState::lost,
                         std::memory_order_release);
  if (accessing.given_up) end_access(&accessing);
}

void Provider::end_access(Accessing* access) {
  if (access->coming.load(std::memory_order_acquire) == RendezvousState::in_flight) {
    access->given_up = true;
    return;
  }
  access->remote.reset();
  give_back(access->slot);
  free_accesses_.push_back(access);
}

void Provider::broke(int rank, const std::string& why) {
  const bool is_new = broken_.emplace(rank, cat(driver_->name(), ": ", why)).second;
  if (is_new) breaks_.fetch_add(1, std::memory_order_release);
}

std::string Provider::why(int rank) const {
  const auto found = broken_.find(rank);
  return found != broken_.end() ? found->second : "";
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

uint64_t Provider::key_of(int rank) const {
  uint64_t key = 0;
  const std::string_view address = ranks_.address_of(rank);
  if (address.size() > sizeof(key)) std::memcpy(&key, address.data(), sizeof(key));
  return key;
}

// ---- receiving

bool Provider::arrived(const Arrival& arrival) {
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
  if (listener != listeners_.end()) return listener->second->on_arrival(arrival);
  if (std::ranges::find(detached_, communicator) != detached_.end()) return false;
  early_[communicator].push_back(arrival);
  return true;
}

void Provider::attach(uint64_t communicator, Listener& listener) {
  listeners_[communicator] = &listener;
  const auto early = early_.extract(communicator);
  if (early.empty()) return;
  for (const Arrival& arrival : early.mapped()) {
    if (!listener.on_arrival(arrival)) drop(arrival);
  }
}

void Provider::detach(uint64_t communicator) {
  const auto listener = listeners_.find(communicator);
  if (listener == listeners_.end()) return;
  for (const auto& send : sends_) {
    if (send->from != listener->second) continue;
    send->from = nullptr;
    // The memory was lent, and belongs to its owner again.
    if (send->slot != nullptr && send->slot->own == nullptr) send->slot = nullptr;
  }
  listeners_.erase(listener);
  detached_.push_back(communicator);
  if (detached_.size() > kDetachedKnown) detached_.pop_front();
}

}  // namespace tutti::fabric
