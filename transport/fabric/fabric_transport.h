// A fabric (UCX, libfabric) between the ranks of a communicator.
//
// The place of a message in the order of its connection is our own sequence number, since a fabric
// promises none across its protocols. A small payload is kept in the cell that its number gives it,
// a larger one in the driver's buffer, both read in place; of one that comes by rendezvous the
// header comes first, and the payload goes straight to where read() wants it.
//
// Credit: a sender has at most kCells messages on a connection that the reader has not released. It
// hears of releases with what the reader sends to it, or by a message of their own for every few.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/provider.h"
#include "transport/limits.h"
#include "transport/transport.h"

namespace tutti {

class FabricTransport final : public Transport, private fabric::Listener {
 public:
  // The connection to (`sending`) or from `peer` broke while it was needed. Called once for each.
  using Lost = std::function<void(int peer, bool sending, const std::string& text)>;

  // `members` are world ranks, this one number `rank` among them. `provider` outlives this.
  FabricTransport(fabric::Provider& provider, uint64_t id, std::vector<int> members, int rank,
                  Lost lost);
  // Returns when nothing of it is under way that touches memory of others'.
  ~FabricTransport() override;
  static Limits limits(int ranks);

  // When this rank leaves the job it waits so long for others to take what it sent here; after an
  // abort not at all.
  void wait_for_readers(std::chrono::nanoseconds patience);
  void forget_readers();

  std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) override;
  void commit(const MessageHeader& header) override;
  bool write(int peer, int lane, const MessageHeader& header, std::span<const std::byte> payload,
             int credit) override {
    return write_by_copy(peer, lane, header, payload, credit);
  }
  // Large payloads are sent from where they lie.
  bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const override;
  int lend(std::span<const int> peers, int lane, const MessageHeader& header,
           std::span<const std::byte> payload) override;
  bool take_back(int loan) override;
  // Ends what is being received, too, since its destination is the caller's again.
  void revoke() override;
  bool collectives_sent() const override;
  bool p2p_sent(int peer) const override;
  std::vector<int> unsent() const override;
  const MessageHeader* front(int peer, int lane) override;
  const std::byte* payload(int peer, int lane) override;
  bool read(int peer, int lane, std::span<std::byte> destination, Store store) override;
  void used(int, int, size_t) override {}
  bool release(int peer, int lane) override;
  void end_sending() override;
  bool ended(int peer, int lane) const override;
  bool progress() override;
  void arm(WaitSet& set) override;
  void watch(WaitSet& set) override;
  void disarm() override {}

 private:
  static constexpr int kLanes = 1;
  static constexpr uint32_t kCells = 16;  // messages under way per connection

  // Locked, as is all that is sent.
  struct Out {
    uint32_t sent = 0;
    uint32_t released = 0;  // by the reader, as far as it has told
    int held = 0;           // slots
    bool failed = false;    // something was or would have been sent, and never comes
  };

  // The n-th message of a connection is in cell n mod kCells. Written by whoever makes progress, up
  // to `sequence`; then the reader's until it is released.
  struct Cell {
    std::atomic<uint32_t> sequence{0};
    std::atomic<fabric::Coming> coming{fabric::Coming::no};
    fabric::Arrival arrival;
    fabric::Slot* slot = nullptr;  // of a rendezvous' payload that is read in place
  };

  static bool is_under_way(const Cell& cell) {
    return cell.coming.load(std::memory_order_acquire) == fabric::Coming::under_way;
  }

  struct In {
    std::atomic<Cell*> cells{nullptr};  // made when the first message comes
    std::atomic<uint32_t> taken{0};     // released; written by the reader
    uint32_t told = 0;                  // of these; the reader's
    std::atomic<int64_t> total{-1};     // messages that have come and will come, once known
  };

  size_t index(int peer, int lane) const { return static_cast<size_t>(peer) * (kLanes + 1) + lane; }
  int peer_of(size_t connection) const { return static_cast<int>(connection) / (kLanes + 1); }
  bool is_p2p(size_t connection) const { return connection % (kLanes + 1) == kLanes; }
  Out& out(int peer, int lane) { return out_[index(peer, lane)]; }
  In& in(int peer, int lane) { return in_[index(peer, lane)]; }
  Cell& cell(const In& connection) const;

  struct Loan {
    fabric::Slot slot;
    bool taken = false;
    std::vector<int> peers;
  };

  bool hear(const fabric::Arrival& arrival) override;
  void sent(size_t connection, bool well) override;
  bool keep(const fabric::Arrival& arrival, In& connection);
  bool has_room(int peer, int lane, int credit);
  fabric::Header header_for(int peer, int lane, fabric::Kind kind);
  bool has_spoken(int peer) const;
  void begin(Cell& cell, std::byte* destination);
  void send(std::span<const int> peers, int lane, const MessageHeader& header, fabric::Slot& slot);
  bool is_here(int peer, const Cell& cell);
  bool any_under_way() const;
  bool holds_any(int peer) const;
  void send_ends();
  void look_for_breaks();

  fabric::Provider& provider_;
  const uint64_t id_;
  const std::vector<int> members_;
  const int rank_;
  const Lost lost_;
  std::vector<Out> out_;
  std::vector<In> in_;
  std::vector<std::unique_ptr<Loan>> loans_;  // locked
  bool revoked_ = false;                      // locked
  std::vector<std::unique_ptr<Cell[]>> cells_;
  std::atomic<int> collectives_held_{0};
  std::vector<Cell*> receiving_;  // rendezvous that were begun and are not released

  std::span<const int> peers_;
  int lane_ = 0;
  fabric::Slot* slot_ = nullptr;
  bool ends_sending_ = false;
  bool ends_sent_ = false;

  std::vector<std::array<bool, 2>> told_lost_;  // by peer: receiving, sending
  uint32_t breaks_seen_ = 0;
  std::atomic<bool> any_failed_{false};
};

}  // namespace tutti
