// AES-128-GCM for the records of TLS 1.3.
//
// OpenSSL from 3.1 on processes four blocks at a time if the processor supports it. Older versions,
// which many systems have, take three times as long. In their place Intel's Multi-Buffer Crypto for
// IPsec (libipsec-mb) is used if it is installed and the processor supports it.
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

  // Returns the fastest implementation available. Throws Error(internal) if OpenSSL has none.
  static std::unique_ptr<Gcm> make(const Key& key);
  static std::unique_ptr<Gcm> make_openssl(const Key& key);
  // Returns an implementation by libipsec-mb; null if the library is missing, the processor cannot
  // process four blocks at a time, or TUTTI_CPU excludes AVX-512.
  static std::unique_ptr<Gcm> make_ipsec_mb(const Key& key);

  Gcm() = default;
  Gcm(const Gcm&) = delete;
  Gcm& operator=(const Gcm&) = delete;
  virtual ~Gcm() = default;

  // Encrypts `blocks`, which are whole blocks, and then `last`, up to one block. `into` receives
  // the same number of bytes, followed by the tag. `header`, of up to one block, is only
  // authenticated. A nonce must not be reused.
  virtual void seal(const Nonce& nonce, std::span<const std::byte> header,
                    std::span<const std::byte> blocks, std::span<const std::byte> last,
                    std::byte* into) = 0;
  // Decrypts. Returns false if authentication fails; the output is then meaningless.
  virtual bool open(const Nonce& nonce, std::span<const std::byte> header, const std::byte* sealed,
                    std::span<std::byte> blocks, std::span<std::byte> last) = 0;
};

}  // namespace tutti
