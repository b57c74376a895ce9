// A fabric (UCX, libfabric) between the ranks of a communicator.
//
// A sequence number orders the messages of a connection, because a fabric guarantees no order
// across its protocols. A small payload is stored in the cell that the sequence number selects, a
// larger one in the driver's buffer; the reader reads either in place. For a rendezvous the header
// arrives first, and the payload is received directly into the destination of read().
//
// Credit: at most kCells messages of a connection are in flight, that is, sent but not released by
// the reader. Releases are piggybacked on the reader's own messages, or sent separately for every
// few.
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
  // Reports that the connection to (`sending`) or from `peer` broke while it was needed. Called
  // once per peer and direction.
  using Lost = std::function<void(int peer, bool sending, const std::string& text)>;

  // Creates the transport. `members`: world ranks; members[rank] is this rank. `provider` must
  // outlive this object.
  FabricTransport(fabric::Provider& provider, uint64_t id, std::vector<int> members, int rank,
                  Lost lost);
  // Blocks until no operation in flight touches the caller's memory.
  ~FabricTransport() override;
  static Limits limits(int ranks);

  // Sets how long this rank, when it leaves the job, waits for readers of its messages (0: no
  // limit). After an abort it does not wait.
  void wait_for_readers(std::chrono::nanoseconds send_timeout);
  void forget_readers();

  std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) override;
  void commit(const MessageHeader& header) override;
  bool write(int peer, int lane, const MessageHeader& header, std::span<const std::byte> payload,
             int credit) override {
    return write_by_copy(peer, lane, header, payload, credit);
  }
  // Returns true for large payloads, which are sent in place.
  bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const override;
  int lend(std::span<const int> peers, int lane, const MessageHeader& header,
           std::span<const std::byte> payload) override;
  bool take_back(int loan) override;
  // Ends all loans, and cancels receives in flight, because their destination belongs to the caller
  // again.
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
  static constexpr uint32_t kCells = 16;  // messages in flight per connection

  // Sending state of a connection; like all sending state, guarded by the provider's lock.
  struct Out {
    uint32_t sent = 0;
    // Number of the latest message that the reader is known to have released.
    uint32_t released = 0;
    int held = 0;         // number of messages whose sends have not completed
    bool failed = false;  // a message was lost or could not be sent
  };

  // A slot for one received message: the n-th message of a connection is stored in cell n mod
  // kCells. The thread that makes progress writes the cell, `sequence` last; then the reader owns
  // it until it releases the message.
  struct Cell {
    std::atomic<uint32_t> sequence{0};
    std::atomic<fabric::RendezvousState> coming{fabric::RendezvousState::no};
    fabric::Arrival arrival;
    fabric::Slot* slot = nullptr;  // memory for a rendezvous' payload that is read in place
  };

  static bool is_in_flight(const Cell& cell) {
    return cell.coming.load(std::memory_order_acquire) == fabric::RendezvousState::in_flight;
  }

  struct In {
    std::atomic<Cell*> cells{nullptr};  // allocated with the first message
    std::atomic<uint32_t> taken{0};     // number of messages released; written by the reader
    uint32_t reported = 0;  // number of releases reported to the sender; used by the reader
    std::atomic<int64_t> total{-1};  // total number of messages of the connection, once known
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

  bool on_arrival(const fabric::Arrival& arrival) override;
  void sent(size_t connection, bool well) override;
  bool keep(const fabric::Arrival& arrival, In& connection);
  bool has_room(int peer, int lane, int credit);
  fabric::Header header_for(int peer, int lane, fabric::Kind kind);
  bool has_spoken(int peer) const;
  void begin(Cell& cell, std::byte* destination);
  void send(std::span<const int> peers, int lane, const MessageHeader& header, fabric::Slot& slot);
  bool is_here(int peer, const Cell& cell);
  bool any_in_flight() const;
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
  std::vector<std::unique_ptr<Loan>> loans_;  // guarded by the lock
  bool revoked_ = false;                      // guarded by the lock
  std::vector<std::unique_ptr<Cell[]>> cells_;
  std::atomic<int> collectives_held_{0};
  std::vector<Cell*> receiving_;  // started rendezvous that are not released

  std::span<const int> peers_;
  int lane_ = 0;
  fabric::Slot* slot_ = nullptr;
  bool ends_sending_ = false;
  bool ends_sent_ = false;

  // true: reported as lost. Indexed by peer, then by direction (0: receiving, 1: sending).
  std::vector<std::array<bool, 2>> reported_lost_;
  uint32_t breaks_seen_ = 0;
  std::atomic<bool> any_failed_{false};
};

}  // namespace tutti
