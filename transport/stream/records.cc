#include "transport/stream/records.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace tutti {

namespace {

constexpr size_t kPlainBytes = 16 << 10;  // maximum bytes of plaintext in a record
constexpr size_t kHeaderBytes = 5;
constexpr size_t kTypeBytes = 1;  // the last encrypted byte is the record's type
constexpr size_t kSealedBytes = kHeaderBytes + kPlainBytes + kTypeBytes + Gcm::kTagBytes;
// Records of one system call: enough for a message of 512 KiB with its header.
constexpr size_t kRecordsSent = 33;
constexpr size_t kRecordsReceived = 16;
constexpr size_t kReceivedBytes = kRecordsReceived * kSealedBytes;

enum Type : uint8_t { kHandshake = 22, kData = 23 };
constexpr std::array kVersion = {std::byte{3}, std::byte{3}};  // TLS 1.2, as in all records of 1.3

// The body of a key update: {key_update, length 1, update_not_requested}.
constexpr std::array kKeyUpdate = {std::byte{24}, std::byte{0}, std::byte{0}, std::byte{1},
                                   std::byte{0}};
constexpr size_t kSealedKeyUpdate = kHeaderBytes + kKeyUpdate.size() + kTypeBytes + Gcm::kTagBytes;
constexpr size_t kRoom = kRecordsSent * kSealedBytes + kSealedKeyUpdate;

std::array<std::byte, kHeaderBytes> header_of(size_t sealed_bytes) {
  return {std::byte{kData}, kVersion[0], kVersion[1], static_cast<std::byte>(sealed_bytes >> 8),
          static_cast<std::byte>(sealed_bytes)};
}

// Computes HKDF-Expand-Label of RFC 8446, 7.1, for up to one block of the hash.
void expand_label(const TrafficSecret& secret, std::string_view label, std::span<uint8_t> into) {
  constexpr std::string_view kPrefix = "tls13 ";
  std::array<uint8_t, 64> text{};
  size_t size = 0;
  text[size++] = 0;
  text[size++] = static_cast<uint8_t>(into.size());
  text[size++] = static_cast<uint8_t>(kPrefix.size() + label.size());
  for (const char letter : kPrefix) text[size++] = static_cast<uint8_t>(letter);
  for (const char letter : label) text[size++] = static_cast<uint8_t>(letter);
  text[size++] = 0;  // the context is empty
  text[size++] = 1;  // number of the block
  TrafficSecret block;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(), size,
           block.data(), nullptr) == nullptr) {
    throw Error(ErrorCode::internal, "HMAC-SHA256 failed");
  }
  std::copy_n(block.begin(), into.size(), into.begin());
  OPENSSL_cleanse(block.data(), block.size());
}

}  // namespace

// ---- keys

RecordKeys::RecordKeys(const TrafficSecret& secret) : secret_(secret) { derive(); }

RecordKeys::~RecordKeys() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

void RecordKeys::derive() {
  Gcm::Key key;
  expand_label(secret_, "key", key);
  expand_label(secret_, "iv", iv_);
  gcm_ = Gcm::make(key);
  OPENSSL_cleanse(key.data(), key.size());
  sequence_ = 0;
}

void RecordKeys::renew() {
  TrafficSecret next;
  expand_label(secret_, "traffic upd", next);
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  derive();
}

Gcm::Nonce RecordKeys::next_nonce() {
  Gcm::Nonce nonce = iv_;
  for (size_t i = 0; i < sizeof(sequence_); ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<uint8_t>(sequence_ >> (8 * i));
  }
  ++sequence_;
  return nonce;
}

// ---- sending

RecordWriter::RecordWriter(const TrafficSecret& secret, uint64_t bytes_per_key)
    : keys_(secret),
      bytes_per_key_(bytes_per_key),
      sealed_(std::make_unique_for_overwrite<std::byte[]>(kRoom)) {}

// Sends bytes as records. Sealed bytes that were not sent cannot be taken back, and are not
// reported as sent. The caller passes them again, and the first `ahead_` bytes are skipped.
ssize_t RecordWriter::send(int socket, std::span<const std::byte> head,
                           std::span<const std::byte> rest) {
  const size_t total = head.size() + rest.size();
  size_t sealed = ahead_;
  bool drained = true;
  while (drained && (sealed < total || begin_ < end_)) {
    while (sealed < total && end_ + kSealedBytes + kSealedKeyUpdate <= kRoom) {
      if (sealed < head.size()) {
        // One record holds both parts, which is faster for small messages.
        std::array<std::byte, kPlainBytes> both;
        const std::span<const std::byte> of_head = head.subspan(sealed);
        const size_t first = std::min(of_head.size(), both.size());
        const size_t second = std::min(rest.size(), both.size() - first);
        std::copy_n(of_head.begin(), first, both.begin());
        std::copy_n(rest.begin(), second, both.begin() + static_cast<ptrdiff_t>(first));
        sealed += seal_next(std::span(both).first(first + second));
      } else {
        sealed += seal_next(rest.subspan(sealed - head.size()));
      }
    }
    drained = drain(socket);
  }
  const size_t sent = sealed - std::min(sealed, end_ - begin_);
  ahead_ = sealed - sent;
  return sent > 0 || drained ? static_cast<ssize_t>(sent) : -1;
}

size_t RecordWriter::seal_next(std::span<const std::byte> plain) {
  const size_t size = std::min(plain.size(), kPlainBytes);
  seal(kData, plain.first(size));
  bytes_with_key_ += size;
  if (bytes_with_key_ >= bytes_per_key_) {
    seal(kHandshake, kKeyUpdate);
    keys_.renew();
    bytes_with_key_ = 0;
  }
  return size;
}

void RecordWriter::seal(uint8_t type, std::span<const std::byte> plain) {
  const size_t in_blocks = plain.size() / Gcm::kBlockBytes * Gcm::kBlockBytes;
  std::array<std::byte, Gcm::kBlockBytes> last;
  const std::span<const std::byte> rest = plain.subspan(in_blocks);
  std::ranges::copy(rest, last.begin());
  last[rest.size()] = std::byte{type};
  const auto header = header_of(plain.size() + kTypeBytes + Gcm::kTagBytes);
  std::byte* const record = sealed_.get() + end_;
  std::ranges::copy(header, record);
  keys_.gcm().seal(keys_.next_nonce(), header, plain.first(in_blocks),
                   std::span(last).first(rest.size() + kTypeBytes), record + kHeaderBytes);
  end_ += kHeaderBytes + plain.size() + kTypeBytes + Gcm::kTagBytes;
}

// Sends the sealed records. Returns false, and sets errno, if some could not be sent.
bool RecordWriter::drain(int socket) {
  const ssize_t sent =
      ::send(socket, sealed_.get() + begin_, end_ - begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return false;
  begin_ += static_cast<size_t>(sent);
  if (begin_ < end_) {
    errno = EAGAIN;
    return false;
  }
  begin_ = end_ = 0;
  return true;
}

// ---- receiving

RecordReader::RecordReader(const TrafficSecret& secret)
    : keys_(secret), received_(std::make_unique_for_overwrite<std::byte[]>(kReceivedBytes)) {}

ssize_t RecordReader::receive(int socket, void* into, size_t limit) {
  const std::span<std::byte> memory(static_cast<std::byte*>(into), limit);
  size_t done = 0;
  drained_ = false;
  while (done < limit) {
    if (plain_ < plain_end_) {
      const size_t size = std::min(limit - done, plain_end_ - plain_);
      std::memcpy(memory.data() + done, received_.get() + plain_, size);
      plain_ += size;
      done += size;
    } else if (const size_t record = next_record()) {
      done += open(record, memory.subspan(done));
    } else if (!fill(socket)) {
      break;
    }
  }
  if (done > 0 || limit == 0) return static_cast<ssize_t>(done);
  if (error_ != 0) errno = error_;
  return ended_ && error_ == 0 ? 0 : -1;
}

// Reads available bytes. Returns false, and sets errno, if there were none.
bool RecordReader::fill(int socket) {
  if (error_ != 0 || ended_) return false;
  errno = EAGAIN;
  if (drained_) return false;
  std::memmove(received_.get(), received_.get() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  const size_t room = kReceivedBytes - end_;
  const ssize_t got = ::recv(socket, received_.get() + end_, room, MSG_DONTWAIT);
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) fail(errno);
    return false;
  }
  ended_ = got == 0;
  end_ += static_cast<size_t>(got);
  drained_ = static_cast<size_t>(got) < room;
  return got > 0;
}

size_t RecordReader::fail(int error) {
  error_ = error;
  return 0;
}

size_t RecordReader::next_record() {
  if (error_ != 0 || end_ - begin_ < kHeaderBytes) return 0;
  const std::byte* const header = received_.get() + begin_;
  const size_t sealed =
      std::to_integer<size_t>(header[3]) << 8 | std::to_integer<size_t>(header[4]);
  if (header[0] != std::byte{kData} || !std::equal(kVersion.begin(), kVersion.end(), header + 1) ||
      sealed < kTypeBytes + Gcm::kTagBytes || sealed > kSealedBytes - kHeaderBytes) {
    return fail(EBADMSG);
  }
  return end_ - begin_ < kHeaderBytes + sealed ? 0 : kHeaderBytes + sealed;
}

// Decrypts a record. The last encrypted byte is the record's type. Neither end pads records, sends
// alerts, or asks the other to update its keys.
size_t RecordReader::open(size_t record, std::span<std::byte> into) {
  std::byte* const at = received_.get() + begin_;
  const size_t plain = record - kHeaderBytes - kTypeBytes - Gcm::kTagBytes;
  const size_t in_blocks = plain / Gcm::kBlockBytes * Gcm::kBlockBytes;
  const bool fits = plain <= into.size();
  std::byte* const to = fits ? into.data() : at + kHeaderBytes;
  std::array<std::byte, Gcm::kBlockBytes> last;
  const std::span<std::byte> rest = std::span(last).first(plain - in_blocks + kTypeBytes);
  begin_ += record;
  if (!keys_.gcm().open(keys_.next_nonce(), std::span(at, kHeaderBytes), at + kHeaderBytes,
                        std::span(to, in_blocks), rest)) {
    return fail(EBADMSG);
  }
  if (rest.back() == std::byte{kHandshake} && in_blocks == 0 &&
      std::ranges::equal(rest.first(plain), kKeyUpdate)) {
    keys_.renew();
    return 0;
  }
  if (rest.back() != std::byte{kData}) return fail(EBADMSG);
  std::copy_n(last.begin(), plain - in_blocks, to + in_blocks);
  if (fits) return plain;
  plain_ = static_cast<size_t>(to - received_.get());
  plain_end_ = plain_ + plain;
  return 0;
}

}  // namespace tutti
