#include "transport/shm/shm_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/asymmetric_fence.h"
#include "base/copy_bytes.h"
#include "base/stream_copy.h"

namespace tutti {

using shm::Cell;
using shm::kCells;
using shm::kInlineBytes;

namespace {

constexpr size_t kLine = 64;

// The content of a cell for a lent message.
struct LentAt {
  uint64_t offset = 0;  // offset in the file (heap.h)
  uint32_t epoch = 0;   // the sender's epoch (shm::Lender) when it lent the message
  uint32_t before = 0;  // position of the message in its segment, in units
  uint32_t units = 0;   // length of the segment, in units
};
static_assert(sizeof(LentAt) <= kInlineBytes);
constexpr uint64_t kUnit = 4096;  // bytes of a unit; segments consist of pages

LentAt lent_at(const shm::Place& place, uint32_t epoch) {
  const uint64_t before = place.offset / kUnit - place.segment.offset / kUnit;
  return {.offset = place.offset,
          .epoch = epoch,
          .before = static_cast<uint32_t>(before),
          .units = static_cast<uint32_t>(place.segment.bytes / kUnit)};
}

shm::Extent segment_of(const LentAt& at) {
  return {(at.offset / kUnit - at.before) * kUnit, at.units * kUnit};
}

LentAt lent_at(const Cell& cell) {
  LentAt at;
  std::memcpy(&at, cell.payload, sizeof(at));
  return at;
}

}  // namespace

ShmTransport::ShmTransport(int rank, std::shared_ptr<shm::Region> region,
                           const shm::Geometry& geometry)
    : Transport({.limits = geometry.limits()}),
      rank_(rank),
      process_(::getpid()),
      geometry_(geometry),
      region_(std::move(region)),
      header_(*region_->at<shm::Header>(0)),
      bell_(*region_->at<shm::Doorbell>(geometry_.doorbell(rank))),
      lender_(*region_->at<shm::Lender>(geometry_.lender(rank))),
      out_(index(geometry_.ranks, 0)),
      in_(out_.size()),
      readers_left_(geometry_.slots, 0),
      mapped_(static_cast<size_t>(geometry_.ranks)) {
  // A stack: take_slot() pops the back, so the slot released last, which is probably still in the
  // cache, is reused first. Slot 0 is at the back, so that the slots are first used in ascending
  // order.
  for (int slot = geometry_.slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  if (!join_asymmetric_fences()) header_.full_fences.store(1, std::memory_order_relaxed);
  lender_.attached.store(1, std::memory_order_release);
  header_.attached.fetch_add(1, std::memory_order_acq_rel);
}

void ShmTransport::begin(Out& connection, int peer, int lane) const {
  connection.cells = region_->at<Cell>(geometry_.cells(rank_, peer, lane));
  connection.released = &region_->at<shm::Acks>(geometry_.acks(peer, rank_))->released[lane];
  connection.reader = region_->at<shm::Doorbell>(geometry_.doorbell(peer));
  if (!is_p2p(lane)) return;
  for (int slot = 0; slot < geometry_.p2p_slots; ++slot) connection.p2p_free.push_back(slot);
}

void ShmTransport::begin(In& connection, int peer, int lane) const {
  connection.cells = region_->at<Cell>(geometry_.cells(peer, rank_, lane));
  connection.released = &region_->at<shm::Acks>(geometry_.acks(rank_, peer))->released[lane];
  connection.sender = region_->at<shm::Doorbell>(geometry_.doorbell(peer));
}

// Detaches from the region. A forked child does not detach, because the region is its parent's.
ShmTransport::~ShmTransport() {
  if (::getpid() == process_) header_.detached.fetch_add(1, std::memory_order_acq_rel);
}

std::vector<int> ShmTransport::missing() const {
  std::vector<int> ranks;
  const uint32_t attached = header_.attached.load(std::memory_order_acquire);
  if (attached == static_cast<uint32_t>(geometry_.ranks)) return ranks;
  for (int rank = 0; rank < geometry_.ranks; ++rank) {
    const auto* const lender = region_->at<const shm::Lender>(geometry_.lender(rank));
    if (lender->attached.load(std::memory_order_acquire) == 0) ranks.push_back(rank);
  }
  return ranks;
}

// Takes back the slots that the reader has released.
void ShmTransport::reap(Out& connection, int peer, int lane, uint32_t released) {
  for (; connection.reaped != released; ++connection.reaped) {
    const int slot = connection.slot[connection.reaped % kCells];
    if (slot <= kLent) --loans_[kLent - slot].readers_left;
    if (slot < 0) continue;
    --connection.held;
    if (is_p2p(lane)) {
      connection.p2p_free.push_back(slot);
    } else if (--readers_left_[slot] == 0) {
      free_slots_.push_back(slot);
    }
  }
}

int ShmTransport::take_slot(int peer, int lane) {
  std::vector<int>& free = is_p2p(lane) ? out(peer, lane).p2p_free : free_slots_;
  if (free.empty() && !is_p2p(lane)) {
    for (const size_t i : out_.used()) {
      const auto lanes = static_cast<size_t>(geometry_.lanes + 1);
      const auto of = static_cast<int>(i % lanes);
      if (!is_p2p(of)) reap(*out_.find(i), static_cast<int>(i / lanes), of);
    }
  }
  if (free.empty()) return -1;
  const int slot = free.back();
  free.pop_back();
  return slot;
}

void ShmTransport::take_back() {
  if (slot_ < 0) return;
  (is_p2p(lane_) ? out(peers_[0], lane_).p2p_free : free_slots_).push_back(slot_);
  slot_ = -1;
}

std::byte* ShmTransport::reserve(std::span<const int> peers, int lane, size_t bytes, int credit) {
  take_back();
  const bool small = bytes <= kInlineBytes;
  for (const int peer : peers) {
    Out& connection = out(peer, lane);
    const auto room = [&] {
      return connection.sent - connection.reaped < kCells && (small || connection.held < credit);
    };
    if (!room()) {
      reap(connection, peer, lane);
      if (!room()) return nullptr;
    }
  }
  if (!small) {
    slot_ = take_slot(peers[0], lane);
    if (slot_ < 0) return nullptr;
  }
  peers_ = peers;
  lane_ = lane;
  if (small) return small_.data();
  return region_->at<std::byte>(is_p2p(lane) ? geometry_.p2p_slot(rank_, peers[0], slot_)
                                             : geometry_.slot(rank_, slot_));
}

void ShmTransport::commit(const MessageHeader& header) {
  if (slot_ >= 0 && !is_p2p(lane_)) readers_left_[slot_] = static_cast<int>(peers_.size());
  const int slot = slot_ >= 0 && peers_.size() > 1 ? slot_ | shm::kShared : slot_;
  for (const int peer : peers_) publish(peer, lane_, header, slot, small_.data());
  slot_ = -1;
}

// Sends a message. A small one is published without the state that reserve() keeps for commit().
bool ShmTransport::write(int peer, int lane, const MessageHeader& header,
                         std::span<const std::byte> payload, int credit) {
  if (payload.size() > kInlineBytes) return write_by_copy(peer, lane, header, payload, credit);
  Out& connection = out(peer, lane);
  if (connection.sent - connection.reaped >= kCells) {
    reap(connection, peer, lane);
    if (connection.sent - connection.reaped >= kCells) return false;
  }
  publish(peer, lane, header, kInline, payload.data());
  return true;
}

void ShmTransport::publish(int peer, int lane, const MessageHeader& header, int slot,
                           const std::byte* payload) {
  Out& connection = out(peer, lane);
  const uint32_t index = connection.sent++ % kCells;
  Cell& cell = connection.cells[index];
  connection.slot[index] = slot < 0 ? slot : slot & ~shm::kShared;
  connection.held += slot >= 0 ? 1 : 0;
  cell.slot = static_cast<int16_t>(std::max(slot, kLent));
  cell.released = static_cast<uint16_t>(in(peer, lane).taken);
  cell.header = header;
  if (slot == kInline && header.bytes > 0) std::memcpy(cell.payload, payload, header.bytes);
  if (slot <= kLent) std::memcpy(cell.payload, payload, sizeof(LentAt));
  cell.sequence.store(connection.sent, std::memory_order_release);
  ring(peer, *connection.reader);
}

// Returns true if the payload is in the heap. Registered memory that its owner has unmapped must
// not be lent, nor private memory that was mapped at the same address later.
bool ShmTransport::can_lend(std::span<const int>, std::span<const std::byte> payload) const {
  if (heaps_.own == nullptr) return false;
  const std::optional<shm::Place> place = heaps_.own->find(payload.data(), payload.size(), view_);
  return place && (!place->adopted || heaps_.own->still_adopted(payload));
}

int ShmTransport::lend(std::span<const int> peers, int lane, const MessageHeader& header,
                       std::span<const std::byte> payload) {
  for (const int peer : peers) {
    Out& connection = out(peer, lane);
    if (connection.sent - connection.reaped >= kCells) reap(connection, peer, lane);
    if (connection.sent - connection.reaped >= kCells) return -1;
  }
  if (free_loans_.empty()) {
    free_loans_.push_back(static_cast<int>(loans_.size()));
    loans_.emplace_back();
  }
  const int number = free_loans_.back();
  free_loans_.pop_back();
  Loan& loan = loans_[number];
  loan.peers.assign(peers.begin(), peers.end());
  loan.lane = lane;
  loan.readers_left = static_cast<int>(peers.size());
  const LentAt at = lent_at(*heaps_.own->find(payload.data(), payload.size(), view_),
                            lender_.epoch.load(std::memory_order_relaxed));
  for (const int peer : peers) {
    publish(peer, lane, header, kLent - number, reinterpret_cast<const std::byte*>(&at));
  }
  return number;
}

bool ShmTransport::take_back(int number) {
  Loan& loan = loans_[number];
  for (const int peer : loan.peers) {
    if (loan.readers_left > 0) reap(out(peer, loan.lane), peer, loan.lane);
  }
  if (loan.readers_left > 0) return false;
  free_loans_.push_back(number);
  return true;
}

// Revokes all loans. A seqlock that its owner closes once guards lent memory:
//
//   owner    epoch = e + 1;  full fence;     write the memory (whoever it belongs to now)
//   reader   read the memory; acquire fence; read epoch: the data is valid if it is still e
//
// A reader that saw any of the later writes sees the later epoch as well, because it reads the
// epoch last. The owner's fence is a full one because some stores bypass the caches. Neither side
// waits for the other: a reader that is interrupted while reading detects the revocation when it
// resumes. A reader only reads, in a mapping of its own, so memory that the owner has freed or
// reused is safe.
void ShmTransport::revoke() {
  if (free_loans_.size() == loans_.size()) return;
  lender_.epoch.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  free_loans_.clear();
  loans_.clear();
  for (const size_t i : out_.used()) {
    for (int& slot : out_.find(i)->slot) slot = std::max(slot, kInline);
  }
}

bool ShmTransport::revoked(const Cell& cell, int peer) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto* const lender = region_->at<const shm::Lender>(geometry_.lender(peer));
  return lender->epoch.load(std::memory_order_relaxed) != lent_at(cell).epoch;
}

// Returns the mapping of the segment that has the lent message; null if the address space has no
// room.
const shm::Mapping* ShmTransport::mapping_of(const Cell& cell, int peer) {
  const LentAt at = lent_at(cell);
  auto& known = mapped_.get(static_cast<size_t>(peer), [](auto&) {});
  for (const auto& mapping : known) {
    if (mapping->extent().contains({at.offset, cell.header.bytes})) return mapping.get();
  }
  const shm::Extent segment = segment_of(at);
  std::erase_if(known, [&](const auto& old) { return old->extent().overlaps(segment); });
  std::shared_ptr<const shm::Mapping> mapping = heaps_.others->map(segment);
  if (mapping == nullptr) return nullptr;
  return known.emplace_back(std::move(mapping)).get();
}

// Returns the address of the lent message, or of a copy if its segment cannot be mapped. Returns
// null if the loan is revoked or the copy fails.
const std::byte* ShmTransport::lent(const Cell& cell, int peer, In& connection) {
  if (revoked(cell, peer)) return nullptr;
  if (const shm::Mapping* const mapping = mapping_of(cell, peer)) {
    return mapping->at(lent_at(cell).offset);
  }
  if (connection.copied != connection.taken + 1) {
    connection.copy.resize(cell.header.bytes);
    const int error = heaps_.others->read(lent_at(cell).offset, connection.copy);
    if (error != 0) {
      heaps_.unreadable(peer, error);
      return nullptr;
    }
    connection.copied = connection.taken + 1;
  }
  return connection.copy.data();
}

const MessageHeader* ShmTransport::front(int peer, int lane) {
  const In& connection = in(peer, lane);
  const Cell& cell = connection.cells[connection.taken % kCells];
  if (cell.sequence.load(std::memory_order_acquire) != connection.taken + 1) return nullptr;
  return &cell.header;
}

const std::byte* ShmTransport::payload(int peer, int lane) {
  In& connection = in(peer, lane);
  const Cell& cell = connection.cells[connection.taken % kCells];
  if (cell.slot == kInline) return cell.payload;
  if (cell.slot == kLent) return lent(cell, peer, connection);
  return slot_of(cell, peer, lane);
}

std::byte* ShmTransport::slot_of(const Cell& cell, int peer, int lane) const {
  const int slot = cell.slot & ~shm::kShared;
  return region_->at<std::byte>(is_p2p(lane) ? geometry_.p2p_slot(peer, rank_, slot)
                                             : geometry_.slot(peer, slot));
}

bool ShmTransport::read(int peer, int lane, std::span<std::byte> destination, Store store) {
  constexpr size_t kBlock = 1024;
  const std::byte* const from = payload(peer, lane);
  if (from == nullptr) return destination.empty();
  for (size_t done = 0; done < destination.size();) {
    const size_t bytes = std::min(kBlock, destination.size() - done);
    if (store == Store::streamed) {
      stream_copy(destination.data() + done, from + done, bytes);
    } else {
      copy_bytes(destination.data() + done, from + done, bytes);
    }
    done += bytes;
    used(peer, lane, done);
  }
  if (store == Store::streamed) stream_fence();
  return true;
}

// Takes ownership of the whole cache lines of a slot that are before `bytes`, by writing into them.
// Lent memory is excluded: its owner may write it at any time after an abort, and the reader's
// write could destroy what the owner has written.
void ShmTransport::used(int peer, int lane, size_t bytes) {
  In& connection = in(peer, lane);
  const Cell& cell = connection.cells[connection.taken % kCells];
  size_t& done = connection.taken_over;
  if (cell.slot >= 0 && (cell.slot & shm::kShared) == 0) {
    std::byte* const slot = slot_of(cell, peer, lane);
    for (; done + kLine <= bytes; done += kLine) {
      *reinterpret_cast<volatile uint32_t*>(slot + done) = 0;
    }
  }
}

bool ShmTransport::release(int peer, int lane) {
  In& connection = in(peer, lane);
  const Cell& cell = connection.cells[connection.taken % kCells];
  if (cell.slot == kLent && revoked(cell, peer)) return false;
  if (cell.slot >= 0) {
    used(peer, lane, cell.header.bytes + kLine - 1);
    connection.taken_over = 0;
  }
  Out& back = out(peer, lane);
  const auto more = static_cast<uint16_t>(cell.released - static_cast<uint16_t>(back.reaped));
  // The acks may have reported these releases already.
  if (more > 0 && more <= kCells) reap(back, peer, lane, back.reaped + more);
  connection.released->store(++connection.taken, std::memory_order_release);
  ring(peer, *connection.sender);
  return true;
}

// Returns true if all messages have been released. Messages that the sender published before it
// announced that it leaves are visible now.
bool ShmTransport::ended(int peer, int lane) const {
  const In* const connection = in_.find(index(peer, lane));
  const uint32_t taken = connection != nullptr ? connection->taken : 0;
  const auto* const cells = region_->at<const Cell>(geometry_.cells(peer, rank_, lane));
  return cells[taken % kCells].sequence.load(std::memory_order_acquire) != taken + 1;
}

// Wakes a peer if it sleeps; called after the message is written. Either the peer sees the message
// when it checks a last time before it sleeps, or this rank sees that the peer is asleep. A full
// fence would do the same, but for every message it would wait until the line just written has
// arrived from the other core.
void ShmTransport::ring(int peer, shm::Doorbell& bell) const {
  if (header_.full_fences.load(std::memory_order_relaxed) == 0) {
    light_fence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  const uint32_t asleep = bell.asleep.load(std::memory_order_relaxed);
  if (asleep == shm::kAwake) return;
  if (asleep == shm::kSleepsOnSocket) {
    if (wait_set_ != nullptr) wait_set_->ring(bell_of_(peer));
  } else {
    bell.rings.fetch_add(1, std::memory_order_seq_cst);
    wake_sleepers(bell.rings);
  }
}

// Prepares a sleep. The bell is read first, so that any ring or wake from here on ends the sleep.
void ShmTransport::arm(WaitSet& set) {
  const uint32_t rings = bell_.rings.load(std::memory_order_seq_cst);
  if (!set.on_descriptors()) set.add_word(bell_.rings, rings);
  bell_.asleep.store(set.on_descriptors() ? shm::kSleepsOnSocket : shm::kSleepsOnWord,
                     std::memory_order_relaxed);
  heavy_fence();
}

void ShmTransport::disarm() { bell_.asleep.store(shm::kAwake, std::memory_order_relaxed); }

}  // namespace tutti
