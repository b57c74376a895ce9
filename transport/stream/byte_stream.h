// A connected, non-blocking stream socket, whose bytes go in the clear or encrypted.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/fd.h"
#include "transport/stream/tls.h"

namespace tutti {

class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(Fd socket)
      : socket_(std::move(socket)) {}  // NOLINT: any socket is a stream in the clear

  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  void reset() { *this = {}; }
  // For who will neither read nor write any more.
  Fd release() { return std::move(socket_); }

  // From now on all is encrypted. shake_hands() is to be called until it is done.
  void encrypt(TlsSide side, const TlsKey& key) {
    tls_ = std::make_unique<Tls>(socket_.get(), side, key);
  }
  bool encrypted() const { return tls_ != nullptr; }
  // 0 once it is done, else an errno: EAGAIN when it goes on once the socket is readable.
  int shake_hands() { return tls_->shake_hands(); }
  // For much data, and before any. Bytes that were not asked for may be taken from the socket:
  // whoever waits for it to be readable has had a receive() that came back short.
  void carry_much() {
    if (tls_) tls_->carry_much();
  }

  // As ::recv() and ::send(); EBADMSG when what came is not what the other side sent. receive()
  // comes back short only when nothing more is there. Bytes that send() has not taken must be the
  // first ones of the next call.
  ssize_t receive(void* into, size_t limit) {
    if (tls_) return tls_->receive(into, limit);
    return ::recv(socket_.get(), into, limit, MSG_DONTWAIT);
  }
  ssize_t send(std::span<const std::byte> head, std::span<const std::byte> rest = {}) {
    if (tls_) return tls_->send(head, rest);
    iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                      {const_cast<std::byte*>(rest.data()), rest.size()}};
    msghdr request{};
    request.msg_iov = parts;
    request.msg_iovlen = 2;
    return ::sendmsg(socket_.get(), &request, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Of all that send() has taken, how much at most the other side could not read if everything
  // ended now: what its system has not confirmed, and of TLS the record of which that is the rest.
  size_t unconfirmed() const {
    int bytes = 0;
    if (::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0) return SIZE_MAX;
    const bool in_a_record = tls_ && (bytes > 0 || tls_->is_in_a_record());
    return static_cast<size_t>(bytes) + (in_a_record ? Tls::kRecordBytes : 0);
  }

 private:
  Fd socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace tutti
