#include "transport/transport.h"

#include "base/copy_bytes.h"

namespace tutti {

bool Transport::write_by_copy(int peer, int lane, const MessageHeader& header,
                              std::span<const std::byte> payload, int credit) {
  std::byte* slot = reserve({&peer, 1}, lane, payload.size(), credit);
  if (slot == nullptr) return false;
  copy_bytes(slot, payload.data(), payload.size());
  commit(header);
  return true;
}

}  // namespace tutti
