#include "transport/stream/gcm.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/error.h"
#include "base/reduce.h"
#include "transport/stream/gcm_avx512.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti {

namespace {

constexpr unsigned long kOpensslWithAvx512 = 0x30100000;

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

#if defined(__x86_64__)

class Avx512Gcm final : public Gcm {
 public:
  explicit Avx512Gcm(const Key& key) { gcm_avx512::expand(key.data(), key_); }
  ~Avx512Gcm() override { OPENSSL_cleanse(&key_, sizeof(key_)); }

  void seal(const Nonce& nonce, std::span<const std::byte> header,
            std::span<const std::byte> blocks, std::span<const std::byte> last,
            std::byte* into) override {
    uint8_t* const to = raw(into);
    gcm_avx512::encrypt(key_, nonce.data(), {raw(header.data()), nullptr, header.size()},
                        {{raw(blocks.data()), to, blocks.size()},
                         {raw(last.data()), to + blocks.size(), last.size()}},
                        to + blocks.size() + last.size());
  }

  bool open(const Nonce& nonce, std::span<const std::byte> header, const std::byte* sealed,
            std::span<std::byte> blocks, std::span<std::byte> last) override {
    std::array<uint8_t, kTagBytes> tag;
    const uint8_t* const from = raw(sealed);
    gcm_avx512::decrypt(key_, nonce.data(), {raw(header.data()), nullptr, header.size()},
                        {{from, raw(blocks.data()), blocks.size()},
                         {from + blocks.size(), raw(last.data()), last.size()}},
                        tag.data());
    return CRYPTO_memcmp(tag.data(), from + blocks.size() + last.size(), kTagBytes) == 0;
  }

 private:
  gcm_avx512::Key key_;
};

bool has_vector_aes() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & bit_VAES) != 0 &&
         (c & bit_VPCLMULQDQ) != 0;
}

std::unique_ptr<Gcm> avx512_gcm(const Gcm::Key& key) {
  const bool available = selected_instruction_set() == InstructionSet::avx512 && has_vector_aes();
  return available ? std::make_unique<Avx512Gcm>(key) : nullptr;
}

#else

std::unique_ptr<Gcm> avx512_gcm(const Gcm::Key&) { return nullptr; }

#endif

}  // namespace

std::unique_ptr<Gcm> Gcm::make_openssl(const Key& key) { return std::make_unique<OpensslGcm>(key); }
std::unique_ptr<Gcm> Gcm::make_avx512(const Key& key) { return avx512_gcm(key); }

std::unique_ptr<Gcm> Gcm::make(const Key& key) {
  if (OpenSSL_version_num() < kOpensslWithAvx512) {
    if (std::unique_ptr<Gcm> made = make_avx512(key)) return made;
  }
  return make_openssl(key);
}

}  // namespace tutti
