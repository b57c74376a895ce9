#include "transport/router.h"

#include <algorithm>

#include "base/copy_bytes.h"

namespace tutti {

Limits Router::limits(const Limits& near, const Limits& far) {
  return {.lanes = std::min(near.lanes, far.lanes),
          .slots = std::min(near.slots, far.slots),
          .near = near.near,
          .far = far.far};
}

Router::Router(std::unique_ptr<Transport> near, std::vector<int> near_rank,
               std::unique_ptr<Transport> far)
    : Transport({.limits = limits(near->traits().limits, far->traits().limits),
                 .needs_descriptors = true,
                 .wakes_slowly = far->traits().wakes_slowly}),
      near_(std::move(near)),
      near_rank_(std::move(near_rank)),
      far_(std::move(far)) {}

Router::Path Router::path(int peer, int lane) const {
  const bool is_near = near_rank_[peer] >= 0;
  Transport& transport = is_near ? *near_ : *far_;
  return {&transport, is_near ? near_rank_[peer] : peer,
          lane == lanes() ? transport.lanes() : lane};
}

std::byte* Router::reserve(std::span<const int> peers, int lane, size_t bytes, int credit) {
  near_peers_.clear();
  far_peers_.clear();
  for (const int peer : peers) {
    if (near_rank_[peer] >= 0) {
      near_peers_.push_back(near_rank_[peer]);
    } else {
      far_peers_.push_back(peer);
    }
  }
  const auto reserve_in = [&](Transport& transport, const std::vector<int>& readers) {
    return transport.reserve(readers, lane == lanes() ? transport.lanes() : lane, bytes, credit);
  };
  near_memory_ = near_peers_.empty() ? nullptr : reserve_in(*near_, near_peers_);
  if (!near_peers_.empty() && near_memory_ == nullptr) return nullptr;
  far_memory_ = far_peers_.empty() ? nullptr : reserve_in(*far_, far_peers_);
  if (!far_peers_.empty() && far_memory_ == nullptr) return nullptr;
  return near_memory_ != nullptr ? near_memory_ : far_memory_;
}

void Router::commit(const MessageHeader& header) {
  if (near_memory_ != nullptr && far_memory_ != nullptr) {
    copy_bytes(far_memory_, near_memory_, header.bytes);
  }
  if (near_memory_ != nullptr) near_->commit(header);
  if (far_memory_ != nullptr) far_->commit(header);
}

bool Router::write(int peer, int lane, const MessageHeader& header,
                   std::span<const std::byte> payload, int credit) {
  const Path p = path(peer, lane);
  return p.transport->write(p.rank, p.lane, header, payload, credit);
}

// Returns true if all readers are on this host, and the transport within the host can lend to them.
bool Router::can_lend(std::span<const int> peers, std::span<const std::byte> payload) const {
  for (const int peer : peers) {
    if (near_rank_[peer] < 0) return false;
  }
  return near_->can_lend(peers, payload);
}

int Router::lend(std::span<const int> peers, int lane, const MessageHeader& header,
                 std::span<const std::byte> payload) {
  near_peers_.clear();
  for (const int peer : peers) near_peers_.push_back(near_rank_[peer]);
  return near_->lend(near_peers_, lane == lanes() ? near_->lanes() : lane, header, payload);
}

bool Router::collectives_sent() const {
  return near_->collectives_sent() && far_->collectives_sent();
}

bool Router::p2p_sent(int peer) const {
  const Path p = path(peer, lanes());
  return p.transport->p2p_sent(p.rank);
}

const MessageHeader* Router::front(int peer, int lane) {
  const Path p = path(peer, lane);
  return p.transport->front(p.rank, p.lane);
}

const std::byte* Router::payload(int peer, int lane) {
  const Path p = path(peer, lane);
  return p.transport->payload(p.rank, p.lane);
}

bool Router::read(int peer, int lane, std::span<std::byte> destination, Store store) {
  const Path p = path(peer, lane);
  return p.transport->read(p.rank, p.lane, destination, store);
}

void Router::used(int peer, int lane, size_t bytes) {
  const Path p = path(peer, lane);
  p.transport->used(p.rank, p.lane, bytes);
}

bool Router::release(int peer, int lane) {
  const Path p = path(peer, lane);
  return p.transport->release(p.rank, p.lane);
}

void Router::end_sending() {
  near_->end_sending();
  far_->end_sending();
}

bool Router::ended(int peer, int lane) const {
  const Path p = path(peer, lane);
  return p.transport->ended(p.rank, p.lane);
}

bool Router::progress() {
  const bool near_moved = near_->progress();
  return far_->progress() || near_moved;
}

void Router::arm(WaitSet& set) {
  near_->arm(set);
  far_->arm(set);
}

void Router::watch(WaitSet& set) {
  near_->watch(set);
  far_->watch(set);
}

void Router::disarm() {
  near_->disarm();
  far_->disarm();
}

}  // namespace tutti
