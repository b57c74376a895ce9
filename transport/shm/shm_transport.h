// Shared memory between the ranks of one host.
//
//   sender                                   reader
//   reserve: a free slot of its arena
//   (writes the payload)
//   commit: one cell per reader  ───────►    front: the cell has the next sequence number
//           ring if the reader sleeps       payload: in the sender's slot, read in place
//                                ◄───────    release: count up in its ack line
//
// The only reader of a slot also writes into each cache line of the slot, right after reading it.
// The line is then in the reader's cache only, and one transfer brings it back when the sender
// writes the slot again. Without this both caches would hold the line, and every store of the
// sender would first have to invalidate the reader's copy: 32 KiB would take four times as long on
// Zen 4 (README.md).
//
// A message in a cell or a slot needs no lock, no system call and no read-modify-write atomic,
// unless a rank sleeps or must be woken.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/lazy_table.h"
#include "transport/shm/heap.h"
#include "transport/shm/peer_memory.h"
#include "transport/shm/region.h"
#include "transport/transport.h"

namespace tutti {

// The memory that the ranks of a host read in place from each other.
struct Heaps {
  const shm::Heap* own = nullptr;
  shm::PeerMemory* others = nullptr;
  // Reports that memory which `peer` has lent is permanently unreadable; `error` is the system's
  // errno.
  std::function<void(int peer, int error)> unreadable;
};

class ShmTransport final : public Transport {
 public:
  // Attaches to the region as rank `rank` of geometry.ranks, which all map the same memory.
  ShmTransport(int rank, std::shared_ptr<shm::Region> region, const shm::Geometry& geometry);
  ~ShmTransport() override;

  void use(Heaps heaps) { heaps_ = std::move(heaps); }
  // Sets this rank's wait set, and a function that returns the name of a rank's wait set, for ranks
  // that may sleep on descriptors.
  void use(const WaitSet& wait_set, std::function<std::string(int peer)> bell_of) {
    wait_set_ = &wait_set;
    bell_of_ = std::move(bell_of);
  }

  std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) override;
  void commit(const MessageHeader& header) override;
  bool write(int peer, int lane, const MessageHeader& header, std::span<const std::byte> payload,
             int credit) override;
  bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const override;
  int lend(std::span<const int> peers, int lane, const MessageHeader& header,
           std::span<const std::byte> payload) override;
  bool take_back(int loan) override;
  void revoke() override;
  bool collectives_sent() const override { return true; }
  bool p2p_sent(int) const override { return true; }
  std::vector<int> unsent() const override { return {}; }
  void end_sending() override {}
  const MessageHeader* front(int peer, int lane) override;
  const std::byte* payload(int peer, int lane) override;
  bool read(int peer, int lane, std::span<std::byte> destination, Store store) override;
  void used(int peer, int lane, size_t bytes) override;
  bool release(int peer, int lane) override;
  bool ended(int peer, int lane) const override;
  bool progress() override { return false; }
  void arm(WaitSet& set) override;
  void watch(WaitSet&) override {}
  void disarm() override;

  // Returns the ranks that have not mapped the region yet.
  std::vector<int> missing() const;

 private:
  struct Out {
    shm::Cell* cells = nullptr;
    const std::atomic<uint32_t>* released = nullptr;
    shm::Doorbell* reader = nullptr;
    uint32_t sent = 0;
    uint32_t reaped = 0;                     // number of messages known to be released
    int held = 0;                            // arena slots of sent messages that are not reaped
    std::array<int, shm::kCells> slot = {};  // slot number, or one of the special values below
    std::vector<int> p2p_free;               // free slots, if this is a point-to-point connection
  };
  struct Loan {
    std::vector<int> peers;
    int lane = 0;
    int readers_left = 0;
  };
  struct In {
    const shm::Cell* cells = nullptr;
    std::atomic<uint32_t>* released = nullptr;
    shm::Doorbell* sender = nullptr;
    uint32_t taken = 0;
    // Bytes of the front message's slot whose cache lines this rank has written.
    size_t taken_over = 0;
    // Copy of a lent message, used if the lender's memory cannot be mapped. `copied` is the number
    // of that message on the connection, from 1; 0: none yet.
    std::vector<std::byte> copy;
    uint32_t copied = 0;
  };

  size_t index(int peer, int lane) const {
    return static_cast<size_t>(peer) * static_cast<size_t>(geometry_.lanes + 1) +
           static_cast<size_t>(lane);
  }
  Out& out(int peer, int lane) {
    return out_.get(index(peer, lane), [&](Out& made) { begin(made, peer, lane); });
  }
  In& in(int peer, int lane) {
    return in_.get(index(peer, lane), [&](In& made) { begin(made, peer, lane); });
  }
  void begin(Out& connection, int peer, int lane) const;
  void begin(In& connection, int peer, int lane) const;
  // Special values of `slot`: the payload is in the cell, or lent.
  static constexpr int kInline = -1;
  static constexpr int kLent = -2;  // in Out: kLent - n means loan n
  bool is_p2p(int lane) const { return lane == geometry_.lanes; }
  void publish(int peer, int lane, const MessageHeader& header, int slot, const std::byte* payload);
  void reap(Out& connection, int peer, int lane) {
    reap(connection, peer, lane, connection.released->load(std::memory_order_acquire));
  }
  void reap(Out& connection, int peer, int lane, uint32_t released);
  const std::byte* lent(const shm::Cell& cell, int peer, In& connection);
  const shm::Mapping* mapping_of(const shm::Cell& cell, int peer);
  bool revoked(const shm::Cell& cell, int peer) const;
  std::byte* slot_of(const shm::Cell& cell, int peer, int lane) const;
  int take_slot(int peer, int lane);
  void take_back();
  void ring(int peer, shm::Doorbell& bell) const;

  const int rank_;
  const int64_t process_;
  const WaitSet* wait_set_ = nullptr;
  std::function<std::string(int peer)> bell_of_;
  const shm::Geometry geometry_;
  const std::shared_ptr<shm::Region> region_;
  shm::Header& header_;
  shm::Doorbell& bell_;
  shm::Lender& lender_;
  LazyTable<Out> out_;
  LazyTable<In> in_;
  std::vector<int> free_slots_;
  std::vector<int> readers_left_;  // readers that have not released the slot, by slot
  Heaps heaps_;
  mutable shm::Heap::View view_;  // view of this rank's own heap
  LazyTable<std::vector<std::shared_ptr<const shm::Mapping>>> mapped_;  // by peer
  std::vector<Loan> loans_;
  std::vector<int> free_loans_;

  // Readers, lane and slot of the reservation that commit() has not published yet.
  std::span<const int> peers_;
  int lane_ = 0;
  int slot_ = -1;
  alignas(64) std::array<std::byte, shm::kInlineBytes> small_;
};

}  // namespace tutti
