// A connected, non-blocking stream socket, in plain text or encrypted.
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
  // Releases the socket of a stream that is no longer read or written.
  Fd release() { return std::move(socket_); }

  // Encrypts everything from now on. shake_hands() must then be called until it is done.
  void encrypt(TlsSide side, const TlsKey& key) {
    tls_ = std::make_unique<Tls>(socket_.get(), side, key);
  }
  bool encrypted() const { return tls_ != nullptr; }
  // Does the next step of the TLS handshake. Returns 0 once it is done, otherwise an errno. After
  // EAGAIN, call again once the socket is readable.
  int shake_hands() { return tls_->shake_hands(); }
  // Optimises for bulk data; must be called before any data is sent or received. receive() may then
  // buffer bytes beyond those requested, so a caller may wait for readability only after a short
  // receive().
  void use_large_records() {
    if (tls_) tls_->use_large_records();
  }

  // Receive and send as ::recv() and ::send() do; fail with EBADMSG if the bytes are not those that
  // the other side sent. receive() returns fewer bytes than requested only if no more are
  // available. Bytes that send() did not accept must be the first ones of the next call.
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

  // Returns an upper bound on the accepted bytes that the other side would not receive if the
  // connection ended now: bytes that its system has not confirmed and, with TLS, the incomplete
  // record.
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
