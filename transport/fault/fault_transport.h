// A wrapper around any transport that breaks its rank at a chosen message, for tests: always the
// same way at the same place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "transport/transport.h"

namespace tutti {

enum class FaultKind : uint8_t {
  kill,      // SIGKILL to the own process instead of sending the message
  stall,     // never moves again, but the process lives
  truncate,  // the message arrives with half of its payload
};

struct Fault {
  FaultKind kind = FaultKind::kill;
  int rank = 0;          // in the world
  uint64_t message = 1;  // the how-manieth message that the rank sends
};

// "kill:1:5"; empty: none. Throws Error(invalid_argument).
std::optional<Fault> parse_fault(std::string_view text);

class FaultTransport final : public Transport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, const Fault& fault)
      : inner_(std::move(inner)), fault_(fault) {}

  int lanes() const override { return inner_->lanes(); }
  size_t max_message_bytes() const override { return inner_->max_message_bytes(); }
  size_t max_p2p_message_bytes() const override { return inner_->max_p2p_message_bytes(); }
  int outbox_slots() const override { return inner_->outbox_slots(); }
  std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) override;
  void commit(const MessageHeader& header) override;
  bool write(int peer, int lane, const MessageHeader& header, std::span<const std::byte> payload,
             int credit) override;
  bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const override {
    return inner_->can_lend(peers, payload);
  }
  int lend(std::span<const int> peers, int lane, const MessageHeader& header,
           std::span<const std::byte> payload) override;
  bool take_back(int loan) override { return inner_->take_back(loan); }
  void revoke() override { inner_->revoke(); }
  bool collectives_sent() const override { return inner_->collectives_sent(); }
  bool p2p_sent(int peer) const override { return inner_->p2p_sent(peer); }
  std::vector<int> unsent() const override { return inner_->unsent(); }
  const MessageHeader* front(int peer, int lane) override;
  const std::byte* payload(int peer, int lane) override { return inner_->payload(peer, lane); }
  bool read(int peer, int lane, std::span<std::byte> destination, Store store) override {
    return inner_->read(peer, lane, destination, store);
  }
  void used(int peer, int lane, size_t bytes) override { inner_->used(peer, lane, bytes); }
  bool release(int peer, int lane) override { return inner_->release(peer, lane); }
  void end_sending() override { inner_->end_sending(); }
  bool ended(int peer, int lane) const override { return inner_->ended(peer, lane); }
  bool progress() override { return !stalled_ && inner_->progress(); }
  void arm(WaitSet& set) override { inner_->arm(set); }
  void watch(WaitSet& set) override { inner_->watch(set); }
  void disarm() override { inner_->disarm(); }
  bool needs_descriptors() const override { return inner_->needs_descriptors(); }
  bool wakes_slowly() const override { return inner_->wakes_slowly(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const Fault fault_;
  uint64_t sent_ = 0;
  bool stalled_ = false;
};

}  // namespace tutti
