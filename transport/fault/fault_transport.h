// A wrapper around any transport that injects faults at chosen messages, reproducibly, for tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace tutti {

enum class FaultKind : uint8_t {
  kill,      // SIGKILL to this process instead of sending the message
  stall,     // the rank makes no further progress and does not send the message, but it lives
  truncate,  // the message arrives with half of its payload
  delay,     // the rank pauses after the message
  swap,      // exchanges two words of the next payload over TCP after it was hashed
  abort,     // the rank aborts the communicator, then sends the message
};

struct Fault {
  FaultKind kind = FaultKind::kill;
  int rank = 0;               // world rank
  uint64_t message = 1;       // index of the message among those the rank sends, from 1
  uint64_t milliseconds = 0;  // duration of a delay
};

// Parses a list of faults, such as "kill:1:5,delay:2:9:100". An empty text gives none. Throws
// Error(invalid_argument).
std::vector<Fault> parse_faults(std::string_view text);
std::string to_text(const Fault& fault);

// The faults of one rank, and the number of messages it has sent in all communicators together.
class Faults {
 public:
  Faults(const std::vector<Fault>& faults, int rank);

  bool empty() const { return faults_.empty(); }
  // Returns the fault of the next message; null: none.
  const Fault* due() const { return at(sent_ + 1); }
  void sent();
  void stall(const Fault& fault);
  bool stalled() const { return stalled_; }
  // Returns true if any fault is a swap. A swap exchanges two 16-bit words in the next payload over
  // TCP that contains two different ones.
  bool any_swap() const;
  void swap_next(const Fault& fault) { swap_ = &fault; }
  // Exchanges two words of `payload` if a swap is due.
  void swap_words(std::span<std::byte> payload);

 private:
  const Fault* at(uint64_t message) const;

  std::vector<Fault> faults_;
  std::atomic<uint64_t> sent_ = 0;
  std::atomic<bool> stalled_ = false;
  std::atomic<const Fault*> swap_ = nullptr;
};

class FaultTransport final : public Transport {
 public:
  // Wraps `inner`. `faults` must outlive this object. `abort` aborts the communicator.
  FaultTransport(std::unique_ptr<Transport> inner, Faults& faults, std::function<void()> abort)
      : Transport(inner->traits()),
        inner_(std::move(inner)),
        faults_(faults),
        abort_(std::move(abort)) {}

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
  bool progress() override { return !faults_.stalled() && inner_->progress(); }
  void arm(WaitSet& set) override { inner_->arm(set); }
  void watch(WaitSet& set) override { inner_->watch(set); }
  void disarm() override { inner_->disarm(); }

 private:
  bool strike(MessageHeader& header);

  const std::unique_ptr<Transport> inner_;
  Faults& faults_;
  const std::function<void()> abort_;
};

}  // namespace tutti
