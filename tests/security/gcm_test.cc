// Tests that AES-128-GCM by OpenSSL and by our own instructions agree.
#include "transport/stream/gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

Bytes from_hexadecimal(std::string_view text) {
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

template <size_t kSize>
std::array<uint8_t, kSize> array_of(const Bytes& bytes) {
  std::array<uint8_t, kSize> values{};
  std::ranges::transform(bytes, values.begin(), [](std::byte b) { return uint8_t(b); });
  return values;
}

size_t whole_blocks(size_t size) {
  return (size - (size > 0 ? 1 : 0)) / Gcm::kBlockBytes * Gcm::kBlockBytes;
}

Bytes seal(Gcm& gcm, const Gcm::Nonce& nonce, const Bytes& header, const Bytes& plain) {
  Bytes sealed(plain.size() + Gcm::kTagBytes);
  const size_t blocks = whole_blocks(plain.size());
  const std::span all(plain);
  gcm.seal(nonce, header, all.first(blocks), all.subspan(blocks), sealed.data());
  return sealed;
}

// Decrypts a record. Returns false if the record is refused.
bool open(Gcm& gcm, const Gcm::Nonce& nonce, const Bytes& header, const Bytes& sealed,
          Bytes& plain) {
  plain.resize(sealed.size() - Gcm::kTagBytes);
  const size_t blocks = whole_blocks(plain.size());
  const std::span all(plain);
  return gcm.open(nonce, header, sealed.data(), all.first(blocks), all.subspan(blocks));
}

class Gcms : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Gcm> make(const Gcm::Key& key) {
    return GetParam() ? Gcm::make_ipsec_mb(key) : Gcm::make_openssl(key);
  }
  void SetUp() override {
    if (!make({}))
      GTEST_SKIP() << "there is no libipsec-mb here, or the processor has no VAES with AVX-512";
  }
};

INSTANTIATE_TEST_SUITE_P(By, Gcms, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "IpsecMb" : "Openssl");
});

// Test case 3 of McGrew and Viega, "The Galois/Counter Mode of Operation".
TEST_P(Gcms, MatchesThePaper) {
  const auto gcm = make(array_of<16>(from_hexadecimal("feffe9928665731c6d6a8f9467308308")));
  const auto nonce = array_of<12>(from_hexadecimal("cafebabefacedbaddecaf888"));
  const Bytes plain = from_hexadecimal(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6"
      "b525b16aedf5aa0de657ba637b391aafd255");
  const Bytes sealed = from_hexadecimal(
      "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84"
      "aa051ba30b396a0aac973d58e091473f59854d5c2af327cd64a62cf35abd2ba6fab4");
  EXPECT_EQ(seal(*gcm, nonce, {}, plain), sealed);
  Bytes opened;
  EXPECT_TRUE(open(*gcm, nonce, {}, sealed, opened));
  EXPECT_EQ(opened, plain);
}

TEST_P(Gcms, MatchesOpenssl) {
  std::mt19937 random(1);
  const auto fill = [&](auto& bytes) {
    for (auto& byte : bytes) byte = static_cast<std::decay_t<decltype(byte)>>(random());
  };
  for (size_t size = 0; size < 17'000; size += size < 1100 ? 1 : 997) {
    Gcm::Key key;
    Gcm::Nonce nonce;
    Bytes header(random() % (Gcm::kBlockBytes + 1));
    Bytes plain(size);
    fill(key);
    fill(nonce);
    fill(header);
    fill(plain);
    const auto gcm = make(key);
    const Bytes sealed = seal(*gcm, nonce, header, plain);
    ASSERT_EQ(sealed, seal(*Gcm::make_openssl(key), nonce, header, plain)) << size;
    Bytes opened;
    ASSERT_TRUE(open(*gcm, nonce, header, sealed, opened)) << size;
    ASSERT_EQ(opened, plain) << size;
  }
}

TEST_P(Gcms, DetectsAnyChangedBit) {
  const Gcm::Nonce nonce = {1};
  const auto gcm = make({2});
  const Bytes header(5, std::byte{3});
  const Bytes sealed = seal(*gcm, nonce, header, Bytes(300, std::byte{4}));
  Bytes opened;
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    Bytes changed = sealed;
    changed[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_FALSE(open(*gcm, nonce, header, changed, opened)) << bit;
  }
  EXPECT_FALSE(open(*gcm, nonce, Bytes(5, std::byte{5}), sealed, opened));
  EXPECT_FALSE(open(*gcm, {9}, header, sealed, opened));
  EXPECT_FALSE(open(*make({8}), nonce, header, sealed, opened));
  EXPECT_TRUE(open(*gcm, nonce, header, sealed, opened));
}

}  // namespace
}  // namespace tutti
