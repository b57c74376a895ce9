#include "bindings/nccl_plugins/net_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tutti::nccl {

namespace {

// Converts the result `got` of send or receive. EAGAIN means that nothing moved.
Moved moved(ssize_t got, int& error) {
  if (got > 0) return Moved::some;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Moved::nothing;
  error = got == 0 ? 0 : errno;
  return Moved::end;
}

}  // namespace

void SendStream::begin(const Slice& slice, const std::byte* payload) {
  slice_ = slice;
  payload_ = payload;
  left_ = sizeof(Slice) + slice.bytes;
}

Moved SendStream::advance(int& error) {
  if (idle()) return Moved::nothing;
  const uint64_t payload_left = std::min(left_, slice_.bytes);
  const uint64_t header_left = left_ - payload_left;
  std::array<iovec, 2> parts{};
  size_t count = 0;
  if (header_left > 0) {
    auto* const header = reinterpret_cast<std::byte*>(&slice_);
    parts[count++] = {header + sizeof(Slice) - header_left, header_left};
  }
  if (payload_left > 0) {
    const std::byte* const from = payload_ + (slice_.bytes - payload_left);
    parts[count++] = {const_cast<std::byte*>(from), payload_left};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) left_ -= static_cast<uint64_t>(sent);
  return moved(sent, error);
}

void ReceiveStream::place(std::byte* destination) {
  destination_ = destination;
  payload_left_ = slice_.bytes;
  placed_ = true;
}

Slice ReceiveStream::take() {
  placed_ = false;
  header_bytes_ = 0;
  return slice_;
}

Moved ReceiveStream::advance(int& error) {
  std::byte* into = destination_;
  size_t wanted = payload_left_;
  if (!placed_) {
    into = reinterpret_cast<std::byte*>(&slice_) + header_bytes_;
    wanted = sizeof(Slice) - header_bytes_;
  }
  const ssize_t got = ::recv(socket_.get(), into, wanted, MSG_DONTWAIT);
  if (got > 0 && placed_) {
    destination_ += got;
    payload_left_ -= static_cast<uint64_t>(got);
  } else if (got > 0) {
    header_bytes_ += static_cast<size_t>(got);
  }
  return moved(got, error);
}

}  // namespace tutti::nccl
