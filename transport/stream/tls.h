// TLS 1.3 (OpenSSL) on a connected, non-blocking socket between two peers with a shared key.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/stream/records.h"

struct ssl_st;  // SSL of OpenSSL

namespace tutti {

enum class TlsSide { connects, accepts };
using TlsKey = std::array<uint8_t, 32>;

class Tls {
 public:
  static constexpr size_t kRecordBytes = 16 << 10;  // maximum size of a record
  static constexpr uint64_t kBytesPerKey = uint64_t{64} << 30;

  // Starts TLS on a socket, which is borrowed. `key` is used for this connection only. Throws
  // Error(internal).
  Tls(int socket, TlsSide side, const TlsKey& key, uint64_t bytes_per_key = kBytesPerKey);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Does the next step of the handshake; see ByteStream.
  int shake_hands();
  void use_large_records();
  ssize_t receive(void* into, size_t limit);
  ssize_t send(std::span<const std::byte> head, std::span<const std::byte> rest);

  // Read from and write to the socket; called by OpenSSL.
  ssize_t receive_raw(char* into, size_t limit);
  ssize_t send_raw(const char* bytes, size_t size);
  const TlsKey& key() const { return key_; }
  // Returns true if a record of use_large_records() mode may have been sent in part.
  bool is_in_a_record() const { return writer_ && writer_->holds_sealed(); }
  // Stores the traffic secret of one side.
  void keep(TlsSide side, const TrafficSecret& secret) { secret_of(side) = secret; }

 private:
  ssize_t fail(int result);
  TrafficSecret& secret_of(TlsSide side) { return secrets_[side == TlsSide::connects ? 0 : 1]; }
  void forget_secrets();

  const int socket_;
  const TlsSide side_;
  TlsKey key_;
  std::array<TrafficSecret, 2> secrets_ = {};
  const uint64_t bytes_per_key_;
  uint64_t bytes_with_key_ = 0;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
  std::unique_ptr<RecordWriter> writer_;  // used for bulk data
  std::unique_ptr<RecordReader> reader_;
  bool ended_ = false;  // true: the socket has ended
  int error_ = 0;       // the socket's last error
  int failure_ = 0;     // permanent error
};

}  // namespace tutti
