// AES-128-GCM by Intel's Multi-Buffer Crypto for IPsec, loaded at run time if installed.
#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <memory>

#include "base/reduce.h"
#include "transport/stream/gcm.h"

namespace tutti {

namespace {

using Manager = std::unique_ptr<IMB_MGR, decltype(&free_mb_mgr)>;

// Returns the function table for this processor, which lives as long as the process; null if its
// functions would be no faster than OpenSSL's.
const IMB_MGR* load() {
  void* const library = ::dlopen("libIPSec_MB.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto make = reinterpret_cast<decltype(&alloc_mb_mgr)>(::dlsym(library, "alloc_mb_mgr"));
  const auto init =
      reinterpret_cast<decltype(&init_mb_mgr_auto)>(::dlsym(library, "init_mb_mgr_auto"));
  const auto free = reinterpret_cast<decltype(&free_mb_mgr)>(::dlsym(library, "free_mb_mgr"));
  if (make == nullptr || init == nullptr || free == nullptr) return nullptr;
  Manager manager(make(0), free);
  if (manager == nullptr) return nullptr;
  init(manager.get(), nullptr);
  return (manager->features & IMB_FEATURE_VAES) != 0 ? manager.release() : nullptr;
}

class IpsecMbGcm final : public Gcm {
 public:
  IpsecMbGcm(const IMB_MGR& functions, const Key& key) : functions_(functions) {
    IMB_AES128_GCM_PRE(&functions_, key.data(), &key_);
  }
  ~IpsecMbGcm() override {
    OPENSSL_cleanse(&key_, sizeof(key_));
    OPENSSL_cleanse(&context_, sizeof(context_));
  }

  void seal(const Nonce& nonce, std::span<const std::byte> header,
            std::span<const std::byte> blocks, std::span<const std::byte> last,
            std::byte* into) override {
    std::byte* const after = into + blocks.size();
    begin(nonce, header);
    IMB_AES128_GCM_ENC_UPDATE(&functions_, &key_, &context_, raw(into), raw(blocks.data()),
                              blocks.size());
    IMB_AES128_GCM_ENC_UPDATE(&functions_, &key_, &context_, raw(after), raw(last.data()),
                              last.size());
    IMB_AES128_GCM_ENC_FINALIZE(&functions_, &key_, &context_, raw(after + last.size()), kTagBytes);
  }

  bool open(const Nonce& nonce, std::span<const std::byte> header, const std::byte* sealed,
            std::span<std::byte> blocks, std::span<std::byte> last) override {
    std::array<std::byte, kTagBytes> sent;
    std::array<std::byte, kTagBytes> tag;
    std::copy_n(sealed + blocks.size() + last.size(), kTagBytes, sent.begin());
    begin(nonce, header);
    IMB_AES128_GCM_DEC_UPDATE(&functions_, &key_, &context_, raw(blocks.data()), raw(sealed),
                              blocks.size());
    IMB_AES128_GCM_DEC_UPDATE(&functions_, &key_, &context_, raw(last.data()),
                              raw(sealed + blocks.size()), last.size());
    IMB_AES128_GCM_DEC_FINALIZE(&functions_, &key_, &context_, raw(tag.data()), kTagBytes);
    return CRYPTO_memcmp(tag.data(), sent.data(), kTagBytes) == 0;
  }

 private:
  static const uint8_t* raw(const std::byte* bytes) {
    return reinterpret_cast<const uint8_t*>(bytes);
  }
  static uint8_t* raw(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

  void begin(const Nonce& nonce, std::span<const std::byte> header) {
    IMB_AES128_GCM_INIT(&functions_, &key_, &context_, nonce.data(), raw(header.data()),
                        header.size());
  }

  const IMB_MGR& functions_;
  gcm_key_data key_;
  gcm_context_data context_;
};

}  // namespace

std::unique_ptr<Gcm> Gcm::make_ipsec_mb(const Key& key) {
  static const IMB_MGR* const functions = load();
  if (functions == nullptr || selected_instruction_set() != InstructionSet::avx512) return nullptr;
  return std::make_unique<IpsecMbGcm>(*functions, key);
}

}  // namespace tutti
