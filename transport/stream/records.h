// The records of TLS 1.3 (RFC 8446, section 5) with TLS_AES_128_GCM_SHA256, after the handshake.
//
// The bytes on the wire are the same as OpenSSL's. But here one system call sends or receives many
// records, and payload is encrypted directly from the caller's memory and decrypted into it.
// OpenSSL makes a system call per record of 16 KiB and copies each byte twice on each side.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/stream/gcm.h"

namespace tutti {

// The secret from which the keys of one direction are derived.
using TrafficSecret = std::array<uint8_t, 32>;

class RecordKeys {
 public:
  explicit RecordKeys(const TrafficSecret& secret);
  ~RecordKeys();
  RecordKeys(const RecordKeys&) = delete;
  RecordKeys& operator=(const RecordKeys&) = delete;

  // Returns the nonce of the next record. It never repeats under the same keys.
  Gcm::Nonce next_nonce();
  Gcm& gcm() { return *gcm_; }
  // Derives the keys that follow a KeyUpdate.
  void renew();

 private:
  void derive();

  TrafficSecret secret_;
  std::unique_ptr<Gcm> gcm_;
  Gcm::Nonce iv_ = {};
  uint64_t sequence_ = 0;
};

class RecordWriter {
 public:
  RecordWriter(const TrafficSecret& secret, uint64_t bytes_per_key);
  // Sends bytes; see ByteStream.
  ssize_t send(int socket, std::span<const std::byte> head, std::span<const std::byte> rest);
  bool holds_sealed() const { return begin_ < end_; }

 private:
  size_t seal_next(std::span<const std::byte> plain);
  void seal(uint8_t type, std::span<const std::byte> plain);
  bool drain(int socket);

  RecordKeys keys_;
  const uint64_t bytes_per_key_;
  uint64_t bytes_with_key_ = 0;
  // Records are in `sealed_` from `begin_` to `end_`.
  const std::unique_ptr<std::byte[]> sealed_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t ahead_ = 0;  // sealed bytes that send() has not reported as sent
};

class RecordReader {
 public:
  explicit RecordReader(const TrafficSecret& secret);
  // Receives bytes; see ByteStream.
  ssize_t receive(int socket, void* into, size_t limit);

 private:
  // Returns the number of bytes of the next record; 0 if it is not complete yet.
  size_t next_record();
  // Decrypts the record into `into`. If `into` is too small, decrypts in place, for receive() to
  // copy. Returns the number of bytes written to `into`; 0 also on errors.
  size_t open(size_t record, std::span<std::byte> into);
  bool fill(int socket);
  size_t fail(int error);

  RecordKeys keys_;
  // Received bytes are in `received_` from `begin_` to `end_`; before them is the rest of a
  // decrypted record, from `plain_` to `plain_end_`.
  const std::unique_ptr<std::byte[]> received_;
  size_t plain_ = 0;
  size_t plain_end_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool drained_ = false;  // the last receive took all available bytes
  bool ended_ = false;
  int error_ = 0;  // permanent error
};

}  // namespace tutti
