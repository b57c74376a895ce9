// Sends each message by the transport that reaches its reader: shared memory within the host, TCP
// or a fabric to other hosts. A message to readers of both kinds uses a slot of each transport.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace tutti {

class Router final : public Transport {
 public:
  // Joins two transports. near_rank[peer] is the peer's rank within `near`, or -1 for peers that
  // are reached through `far` (which uses the communicator's ranks).
  Router(std::unique_ptr<Transport> near, std::vector<int> near_rank,
         std::unique_ptr<Transport> far);
  // Combines the limits of the two paths.
  static Limits limits(const Limits& near, const Limits& far);

  std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) override;
  void commit(const MessageHeader& header) override;
  bool write(int peer, int lane, const MessageHeader& header, std::span<const std::byte> payload,
             int credit) override;
  bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const override;
  int lend(std::span<const int> peers, int lane, const MessageHeader& header,
           std::span<const std::byte> payload) override;
  bool take_back(int loan) override { return near_->take_back(loan); }
  void revoke() override {
    near_->revoke();
    far_->revoke();
  }
  bool collectives_sent() const override;
  bool p2p_sent(int peer) const override;
  std::vector<int> unsent() const override { return far_->unsent(); }
  const MessageHeader* front(int peer, int lane) override;
  const std::byte* payload(int peer, int lane) override;
  bool read(int peer, int lane, std::span<std::byte> destination, Store store) override;
  void used(int peer, int lane, size_t bytes) override;
  bool release(int peer, int lane) override;
  void end_sending() override;
  bool ended(int peer, int lane) const override;
  bool progress() override;
  void arm(WaitSet& set) override;
  void watch(WaitSet& set) override;
  void disarm() override;

 private:
  struct Path {
    Transport* transport;
    int rank;
    int lane;
  };
  // Returns the transport, rank and lane that reach a peer. The point-to-point lane has a different
  // index in each transport.
  Path path(int peer, int lane) const;

  const std::unique_ptr<Transport> near_;
  const std::vector<int> near_rank_;
  const std::unique_ptr<Transport> far_;
  std::vector<int> near_peers_;
  std::vector<int> far_peers_;
  std::byte* near_memory_ = nullptr;
  std::byte* far_memory_ = nullptr;
};

}  // namespace tutti
