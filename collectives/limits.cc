#include "collectives/limits.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/shm/region.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti {

namespace {

Limits limits_of(const shm::Geometry& geometry) {
  return {.lanes = geometry.lanes,
          .slots = geometry.slots,
          .message_bytes = geometry.slot_bytes,
          .p2p_message_bytes = geometry.p2p_slot_bytes};
}

Limits limits_of(const Transport& transport) {
  return {.lanes = transport.lanes(),
          .slots = transport.outbox_slots(),
          .message_bytes = transport.max_message_bytes(),
          .p2p_message_bytes = transport.max_p2p_message_bytes()};
}

}  // namespace

Limits agreed_limits(int largest_local, bool shm, const Transport* tcp) {
  if (!shm) return limits_of(*tcp);
  const Limits near = limits_of(shm::Geometry(largest_local, largest_local));
  if (tcp == nullptr) return near;
  const Limits far = limits_of(*tcp);
  return {.lanes = std::min(near.lanes, far.lanes),
          .slots = std::min(near.slots, far.slots),
          .message_bytes = std::min(near.message_bytes, far.message_bytes),
          .p2p_message_bytes = std::min(near.p2p_message_bytes, far.p2p_message_bytes)};
}

int tcp_streams() {
  const int64_t streams = settings().get_int("TUTTI_TCP_STREAMS");
  if (streams >= 1 && streams <= shm::kMaxLanes) return static_cast<int>(streams);
  throw Error(ErrorCode::invalid_argument,
              cat("TUTTI_TCP_STREAMS=", streams, " is not in 1 to ", shm::kMaxLanes));
}

Machine imagined_machine(int ranks, int group, bool shm, const CostModel& model) {
  const bool near_shm = shm && group > 1;
  std::unique_ptr<TcpTransport> far;
  if (!near_shm || group < ranks) {
    far = std::make_unique<TcpTransport>(ranks, tcp_streams(), TcpTransport::Hooks{});
  }
  return {.model = model,
          .limits = agreed_limits(group, near_shm, far.get()),
          .hosts = Hosts::equal(ranks, group),
          .near_shm = near_shm};
}

}  // namespace tutti
