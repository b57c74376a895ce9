#include "transport/stream/gcm.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/error.h"

namespace tutti {

namespace {

constexpr unsigned long kOpensslWithVaes = 0x30100000;

const uint8_t* raw(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }
uint8_t* raw(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

class OpensslGcm final : public Gcm {
 public:
  explicit OpensslGcm(const Key& key) : context_(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free) {
    require(context_ != nullptr && EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr,
                                                     key.data(), nullptr, 1) == 1);
  }

  void seal(const Nonce& nonce, std::span<const std::byte> header,
            std::span<const std::byte> blocks, std::span<const std::byte> last,
            std::byte* into) override {
    std::byte* const tag = into + blocks.size() + last.size();
    begin(nonce, header, true);
    update(blocks.data(), into, blocks.size());
    update(last.data(), into + blocks.size(), last.size());
    int none = 0;
    require(EVP_CipherFinal_ex(context_.get(), raw(tag), &none) == 1 &&
            EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1);
  }

  bool open(const Nonce& nonce, std::span<const std::byte> header, const std::byte* sealed,
            std::span<std::byte> blocks, std::span<std::byte> last) override {
    std::array<std::byte, kTagBytes> tag;
    std::copy_n(sealed + blocks.size() + last.size(), kTagBytes, tag.begin());
    begin(nonce, header, false);
    require(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1);
    update(sealed, blocks.data(), blocks.size());
    update(sealed + blocks.size(), last.data(), last.size());
    int none = 0;
    return EVP_CipherFinal_ex(context_.get(), raw(tag.data()), &none) == 1;
  }

 private:
  static void require(bool done) {
    if (!done) throw Error(ErrorCode::internal, "OpenSSL's AES-128-GCM failed");
  }

  void begin(const Nonce& nonce, std::span<const std::byte> header, bool encrypts) {
    require(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(),
                              encrypts ? 1 : 0) == 1);
    update(header.data(), nullptr, header.size());
  }

  void update(const std::byte* from, std::byte* to, size_t bytes) {
    int done = 0;
    require(bytes == 0 || EVP_CipherUpdate(context_.get(), raw(to), &done, raw(from),
                                           static_cast<int>(bytes)) == 1);
  }

  std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> context_;
};

}  // namespace

std::unique_ptr<Gcm> Gcm::make_openssl(const Key& key) { return std::make_unique<OpensslGcm>(key); }

std::unique_ptr<Gcm> Gcm::make(const Key& key) {
  if (OpenSSL_version_num() < kOpensslWithVaes) {
    if (std::unique_ptr<Gcm> made = make_ipsec_mb(key)) return made;
  }
  return make_openssl(key);
}

}  // namespace tutti
