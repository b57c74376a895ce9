// AES-128-GCM, as the records of TLS 1.3 use it.
//
// OpenSSL's, from 3.1 on, works on four blocks at a time where the processor can. Older ones are
// what many systems have, and take three times as long: there it is that of Intel's Multi-Buffer
// Crypto for IPsec (libipsec-mb), where that is installed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tutti {

class Gcm {
 public:
  using Key = std::array<uint8_t, 16>;
  using Nonce = std::array<uint8_t, 12>;
  static constexpr size_t kBlockBytes = 16;
  static constexpr size_t kTagBytes = 16;

  // The quickest here. Throws Error(internal) when OpenSSL has none.
  static std::unique_ptr<Gcm> make(const Key& key);
  static std::unique_ptr<Gcm> make_openssl(const Key& key);
  // Null where there is no such library, or the processor cannot do four blocks at a time.
  static std::unique_ptr<Gcm> make_ipsec_mb(const Key& key);

  Gcm() = default;
  Gcm(const Gcm&) = delete;
  Gcm& operator=(const Gcm&) = delete;
  virtual ~Gcm() = default;

  // Encrypts whole blocks, and then up to one more; `into` gets as many bytes, and the tag. The
  // header, of up to one block, is only authenticated. No nonce may be used twice.
  virtual void seal(const Nonce& nonce, std::span<const std::byte> header,
                    std::span<const std::byte> blocks, std::span<const std::byte> last,
                    std::byte* into) = 0;
  // The same backwards. False: it is not what was sealed, and what was written means nothing.
  virtual bool open(const Nonce& nonce, std::span<const std::byte> header, const std::byte* sealed,
                    std::span<std::byte> blocks, std::span<std::byte> last) = 0;
};

}  // namespace tutti
