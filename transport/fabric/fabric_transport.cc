#include "transport/fabric/fabric_transport.h"

#include <algorithm>
#include <utility>

#include "base/copy_bytes.h"
#include "base/deadline.h"
#include "base/stream_copy.h"
#include "base/text.h"

namespace tutti {

using fabric::Arrival;
using fabric::Header;
using fabric::Kind;
using fabric::RendezvousState;

namespace {

constexpr int kSlots = 16;
// Time for rendezvous in flight after an abort; most end by themselves.
constexpr std::chrono::milliseconds kTimeToEnd(200);

// Below this size, a copy is faster than a send in place.
constexpr size_t kLeastLent = 32 << 10;

}  // namespace

FabricTransport::FabricTransport(fabric::Provider& provider, uint64_t id, std::vector<int> members,
                                 int rank, Lost lost)
    : Transport({.limits = limits(static_cast<int>(members.size())),
                 .needs_descriptors = true,
                 .wakes_slowly = true}),
      provider_(provider),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      lost_(std::move(lost)),
      out_(members_.size() * (kLanes + 1)),
      in_(out_.size()),
      reported_lost_(members_.size()) {
  const auto lock = provider_.lock();
  provider_.attach(id_, *this);
}

FabricTransport::~FabricTransport() {
  if (provider_.forked()) return;
  revoke();
  const auto lock = provider_.lock();
  provider_.detach(id_);
  for (const auto& cells : cells_) {
    for (uint32_t i = 0; i < kCells; ++i) {
      if (cells[i].arrival.data != nullptr) provider_.drop(cells[i].arrival);
      if (cells[i].slot != nullptr) provider_.give_back(cells[i].slot);
    }
  }
  if (slot_ != nullptr) provider_.give_back(slot_);
}

Limits FabricTransport::limits(int ranks) {
  return Limits::of_one_path(kLanes, std::max(kSlots, ranks - 1),
                             {fabric::kMessageBytes, fabric::kMessageBytes});
}

// ---- outbox

Header FabricTransport::header_for(int peer, int lane, Kind kind) {
  In& back = in(peer, lane);
  back.reported = back.taken.load(std::memory_order_relaxed);
  return {.communicator = id_,
          .sender = rank_,
          .lane = static_cast<uint16_t>(lane),
          .kind = kind,
          .released = back.reported};
}

bool FabricTransport::has_room(int peer, int lane, int credit) {
  Out& connection = out(peer, lane);
  if (provider_.broken(members_[peer])) {
    connection.failed = true;
    any_failed_.store(true, std::memory_order_relaxed);
    return false;
  }
  return connection.held < credit && connection.sent - connection.released < kCells;
}

std::byte* FabricTransport::reserve(std::span<const int> peers, int lane, size_t, int credit) {
  const auto lock = provider_.lock();
  if (slot_ != nullptr) provider_.give_back(std::exchange(slot_, nullptr));
  for (const int peer : peers) {
    if (!has_room(peer, lane, credit)) return nullptr;
  }
  peers_ = peers;
  lane_ = lane;
  slot_ = provider_.take_slot();
  return slot_->memory;
}

void FabricTransport::commit(const MessageHeader& header) {
  const auto lock = provider_.lock();
  send(peers_, lane_, header, *std::exchange(slot_, nullptr));
}

void FabricTransport::send(std::span<const int> peers, int lane, const MessageHeader& header,
                           fabric::Slot& slot) {
  ++slot.sends;  // counted first, because the first send may complete before the last starts
  for (const int peer : peers) {
    Out& connection = out(peer, lane);
    Header whole = header_for(peer, lane, Kind::message);
    whole.sequence = ++connection.sent;
    whole.message = header;
    ++connection.held;
    if (lane < kLanes) collectives_held_.fetch_add(1, std::memory_order_relaxed);
    provider_.send(members_[peer], whole, &slot, this, index(peer, lane));
  }
  if (--slot.sends == 0) provider_.give_back(&slot);
}

bool FabricTransport::can_lend(std::span<const int>, std::span<const std::byte> payload) const {
  return payload.size() >= kLeastLent && payload.size() <= fabric::kMessageBytes;
}

int FabricTransport::lend(std::span<const int> peers, int lane, const MessageHeader& header,
                          std::span<const std::byte> payload) {
  const auto lock = provider_.lock();
  for (const int peer : peers) {
    if (!has_room(peer, lane, static_cast<int>(kCells))) return -1;
  }
  auto free = std::ranges::find(loans_, false, [](const auto& loan) { return loan->taken; });
  if (free == loans_.end()) free = loans_.insert(free, std::make_unique<Loan>());
  Loan& loan = **free;
  loan.taken = true;
  loan.peers.assign(peers.begin(), peers.end());
  // Safe, because the payload is only read.
  loan.slot.memory = const_cast<std::byte*>(payload.data());
  send(peers, lane, header, loan.slot);
  return static_cast<int>(free - loans_.begin());
}

bool FabricTransport::take_back(int loan) {
  const auto lock = provider_.lock();
  Loan& lent = *loans_[static_cast<size_t>(loan)];
  if (lent.slot.sends > 0) return false;
  lent.taken = false;
  return true;
}

void FabricTransport::sent(size_t connection, bool well) {
  --out_[connection].held;
  if (!is_p2p(connection)) collectives_held_.fetch_sub(1, std::memory_order_release);
  if (well) return;
  out_[connection].failed = true;
  any_failed_.store(true, std::memory_order_relaxed);
}

// Returns true if no collective send is in flight. A send is complete when the network card or the
// system has taken it, or the reader has received it.
bool FabricTransport::collectives_sent() const {
  return collectives_held_.load(std::memory_order_acquire) == 0 && ends_sent_ == ends_sending_;
}

bool FabricTransport::p2p_sent(int peer) const {
  const auto lock = provider_.lock();
  return out_[index(peer, kLanes)].held == 0;
}

std::vector<int> FabricTransport::unsent() const {
  const auto lock = provider_.lock();
  std::vector<int> peers;
  for (size_t i = 0; i < out_.size(); ++i) {
    if (!is_p2p(i) && out_[i].held > 0) peers.push_back(peer_of(i));
  }
  return peers;
}

void FabricTransport::end_sending() {
  ends_sending_ = true;
  send_ends();
}

// Sends the ends once no other send is in flight, because the ends must be the last messages.
void FabricTransport::send_ends() {
  const auto lock = provider_.lock();
  const auto is_through = [](const Out& connection) { return connection.held == 0; };
  if (!std::ranges::all_of(out_, is_through)) return;
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (out(peer, 0).sent == 0 && out(peer, kLanes).sent == 0) continue;
    Header end = header_for(peer, 0, Kind::end);
    for (int lane = 0; lane <= kLanes; ++lane) end.message.signature[lane] = out(peer, lane).sent;
    provider_.send_end(members_[peer], end);
  }
  ends_sent_ = true;
}

void FabricTransport::wait_for_readers(std::chrono::nanoseconds send_timeout) {
  const auto lock = provider_.lock();
  provider_.set_send_timeout(send_timeout);
}

void FabricTransport::forget_readers() {
  const auto lock = provider_.lock();
  provider_.forget_ends(id_);
}

// ---- inbox

// Handles an arrival. The provider calls it with its lock held.
bool FabricTransport::on_arrival(const Arrival& arrival) {
  const Header& header = arrival.header;
  if (header.sender < 0 || header.sender >= static_cast<int>(members_.size()) ||
      header.lane > kLanes) {
    return false;
  }
  uint32_t& released = out(header.sender, header.lane).released;
  if (static_cast<int32_t>(header.released - released) > 0) released = header.released;
  switch (header.kind) {
    case Kind::message:
      return !revoked_ && keep(arrival, in(header.sender, header.lane));
    case Kind::end:
      for (int lane = 0; lane <= kLanes; ++lane) {
        in(header.sender, lane)
            .total.store(static_cast<int64_t>(header.message.signature[lane]),
                         std::memory_order_release);
      }
      return false;
    default:
      return false;
  }
}

bool FabricTransport::keep(const Arrival& arrival, In& connection) {
  const uint32_t ahead =
      arrival.header.sequence - 1 - connection.taken.load(std::memory_order_acquire);
  if (ahead >= kCells) return false;
  if (connection.cells.load(std::memory_order_relaxed) == nullptr) {
    cells_.push_back(std::make_unique<Cell[]>(kCells));
    connection.cells.store(cells_.back().get(), std::memory_order_release);
  }
  Cell& cell =
      connection.cells.load(std::memory_order_relaxed)[(arrival.header.sequence - 1) % kCells];
  cell.arrival = arrival;
  cell.sequence.store(arrival.header.sequence, std::memory_order_release);
  return true;
}

FabricTransport::Cell& FabricTransport::cell(const In& connection) const {
  return connection.cells.load(
      std::memory_order_relaxed)[connection.taken.load(std::memory_order_relaxed) % kCells];
}

const MessageHeader* FabricTransport::front(int peer, int lane) {
  const In& connection = in(peer, lane);
  if (connection.cells.load(std::memory_order_acquire) == nullptr) return nullptr;
  const Cell& oldest = cell(connection);
  const uint32_t next = connection.taken.load(std::memory_order_relaxed) + 1;
  if (oldest.sequence.load(std::memory_order_acquire) != next) return nullptr;
  return &oldest.arrival.header.message;
}

// Starts receiving a rendezvous' payload. The arrival's data then belongs to the driver again.
void FabricTransport::begin(Cell& cell, std::byte* destination) {
  provider_.receive(cell.arrival, destination, cell.coming);
  cell.arrival.data = nullptr;
  receiving_.push_back(&cell);
}

// Returns true if the payload has arrived; reports a lost one, because not every driver reports a
// broken path when it loses a payload.
bool FabricTransport::is_here(int peer, const Cell& cell) {
  const RendezvousState coming = cell.coming.load(std::memory_order_acquire);
  if (coming == RendezvousState::lost &&
      !std::exchange(reported_lost_[static_cast<size_t>(peer)][0], true)) {
    lost_(peer, false, "a payload was lost in transit");
  }
  return coming == RendezvousState::here;
}

const std::byte* FabricTransport::payload(int peer, int lane) {
  Cell& oldest = cell(in(peer, lane));
  if (!oldest.arrival.rendezvous) {
    return oldest.arrival.data != nullptr ? static_cast<const std::byte*>(oldest.arrival.data)
                                          : oldest.arrival.small.data();
  }
  if (oldest.coming.load(std::memory_order_acquire) == RendezvousState::no) {
    const auto lock = provider_.lock();
    oldest.slot = provider_.take_slot();
    begin(oldest, oldest.slot->memory);
  }
  return is_here(peer, oldest) ? oldest.slot->memory : nullptr;
}

bool FabricTransport::read(int peer, int lane, std::span<std::byte> destination, Store store) {
  if (destination.empty()) return true;
  Cell& oldest = cell(in(peer, lane));
  if (oldest.arrival.rendezvous) {
    if (oldest.coming.load(std::memory_order_acquire) == RendezvousState::no) {
      const auto lock = provider_.lock();
      begin(oldest, destination.data());
    }
    return is_here(peer, oldest);
  }
  const std::byte* const from = payload(peer, lane);
  if (store == Store::streamed) {
    stream_copy(destination.data(), from, destination.size());
    stream_fence();
  } else {
    copy_bytes(destination.data(), from, destination.size());
  }
  return true;
}

bool FabricTransport::release(int peer, int lane) {
  In& connection = in(peer, lane);
  Cell& oldest = cell(connection);
  if (oldest.arrival.data != nullptr || oldest.arrival.rendezvous) {
    const auto lock = provider_.lock();
    provider_.drop(oldest.arrival);
    oldest.arrival.data = nullptr;
    if (oldest.slot != nullptr) provider_.give_back(std::exchange(oldest.slot, nullptr));
    std::erase(receiving_, &oldest);
    oldest.coming.store(RendezvousState::no, std::memory_order_relaxed);
  }
  const uint32_t taken = connection.taken.load(std::memory_order_relaxed) + 1;
  connection.taken.store(taken, std::memory_order_release);
  if (taken - connection.reported >= kCells / 2) {
    const auto lock = provider_.lock();
    provider_.send(members_[peer], header_for(peer, lane, Kind::released), nullptr, nullptr, 0);
  }
  return true;
}

// Ends all loans, and receives in flight. Announced payloads will not be read, so their senders
// need not wait. Receives in flight end by themselves, or when their path breaks. A path is cut if
// its other end does nothing.
void FabricTransport::revoke() {
  const auto lock = provider_.lock();
  revoked_ = true;
  for (const auto& cells : cells_) {
    for (uint32_t i = 0; i < kCells; ++i) {
      Arrival& arrival = cells[i].arrival;
      if (!arrival.rendezvous || arrival.data == nullptr) continue;
      provider_.drop(arrival);
      arrival.data = nullptr;
    }
  }
  const Deadline deadline = Deadline::after(kTimeToEnd);
  while (any_in_flight() && !deadline.passed()) provider_.progress_locked();
  const auto cut = [this](int peer) { provider_.cut(members_[static_cast<size_t>(peer)]); };
  for (const Cell* const cell : receiving_) {
    if (is_in_flight(*cell)) cut(cell->arrival.header.sender);
  }
  for (const auto& loan : loans_) {
    for (const int peer : loan->peers) {
      if (loan->slot.sends > 0 && holds_any(peer)) cut(peer);
    }
    loan->taken = false;
  }
  receiving_.clear();
}

bool FabricTransport::holds_any(int peer) const {
  const std::span lanes(&out_[index(peer, 0)], kLanes + 1);
  return std::ranges::any_of(lanes, [](const Out& connection) { return connection.held > 0; });
}

bool FabricTransport::any_in_flight() const {
  return std::ranges::any_of(receiving_, [](const Cell* cell) { return is_in_flight(*cell); }) ||
         std::ranges::any_of(loans_, [](const auto& loan) { return loan->slot.sends > 0; });
}

bool FabricTransport::has_spoken(int peer) const {
  const In* const lanes = &in_[index(peer, 0)];
  return lanes[0].cells.load(std::memory_order_acquire) != nullptr ||
         lanes[kLanes].cells.load(std::memory_order_acquire) != nullptr;
}

// Returns true if all messages of the connection have been released. The peer's end states their
// number, and a rank leaves the job only after its readers have received its ends. If no end has
// arrived, the connection has ended if nothing has arrived from the peer, or the path is broken.
bool FabricTransport::ended(int peer, int lane) const {
  const In& connection = in_[index(peer, lane)];
  const int64_t total = connection.total.load(std::memory_order_acquire);
  if (total >= 0) {
    return static_cast<uint32_t>(total) == connection.taken.load(std::memory_order_relaxed);
  }
  if (!has_spoken(peer)) return true;
  const auto lock = provider_.lock();
  return provider_.broken(members_[static_cast<size_t>(peer)]);
}

// ---- progress, sleeping

bool FabricTransport::progress() {
  const bool moved = provider_.progress();
  if (ends_sending_ && !ends_sent_) send_ends();
  if (any_failed_.load(std::memory_order_relaxed) || provider_.breaks() != breaks_seen_) {
    look_for_breaks();
  }
  return moved;
}

// Reports broken paths that were needed, because sends are pending or messages are expected.
void FabricTransport::look_for_breaks() {
  struct Break {
    int peer;
    bool sending;
    std::string why;
  };
  std::vector<Break> found;
  {
    const auto lock = provider_.lock();
    any_failed_.store(false, std::memory_order_relaxed);
    breaks_seen_ = provider_.breaks();
    for (size_t i = 0; i < out_.size(); ++i) {
      const int peer = peer_of(i);
      if (!provider_.broken(members_[peer])) continue;
      const std::string why = provider_.why(members_[peer]);
      if (out_[i].failed) found.push_back({peer, true, why});
      const bool more_to_come = in_[i].total.load(std::memory_order_acquire) < 0;
      if (more_to_come && has_spoken(peer)) found.push_back({peer, false, why});
    }
  }
  for (const auto& [peer, sending, why] : found) {
    if (!std::exchange(reported_lost_[peer][sending ? 1 : 0], true)) lost_(peer, sending, why);
  }
}

void FabricTransport::arm(WaitSet&) { provider_.arm(); }

void FabricTransport::watch(WaitSet& set) { provider_.watch(set); }

}  // namespace tutti
