#include "transport/stream/gcm_avx512.h"

#include <immintrin.h>

namespace tutti::gcm_avx512 {

namespace {

constexpr size_t kBlock = 16;
constexpr size_t kNonce = 12;
constexpr size_t kVector = 64;
constexpr size_t kStride = 4 * kVector;

// A block is a polynomial whose first bit is the constant term. With its bytes in reverse the
// product of two has the right bits but for a shift, which the hash's key has had beforehand.
__m512i reverse(__m512i blocks) {
  const __m128i order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_shuffle_epi8(blocks, _mm512_broadcast_i32x4(order));
}

// The sum of products, 256 bits each, in three parts.
struct Product {
  __m512i low = _mm512_setzero_si512();
  __m512i middle = _mm512_setzero_si512();
  __m512i high = _mm512_setzero_si512();

  void add(__m512i a, __m512i b) {
    low = _mm512_xor_si512(low, _mm512_clmulepi64_epi128(a, b, 0x00));
    middle = _mm512_ternarylogic_epi64(middle, _mm512_clmulepi64_epi128(a, b, 0x01),
                                       _mm512_clmulepi64_epi128(a, b, 0x10), 0x96);
    high = _mm512_xor_si512(high, _mm512_clmulepi64_epi128(a, b, 0x11));
  }

  // Modulo x^128 + x^7 + x^2 + x + 1, 64 bits at a time; in four sums, one in each lane.
  __m512i reduced() const {
    const __m512i polynomial =
        _mm512_broadcast_i32x4(_mm_set_epi64x(static_cast<int64_t>(0xc200000000000000), 1));
    const __m512i one =
        _mm512_ternarylogic_epi64(middle, _mm512_shuffle_epi32(low, _MM_PERM_BADC),
                                  _mm512_clmulepi64_epi128(polynomial, low, 0x01), 0x96);
    return _mm512_ternarylogic_epi64(high, _mm512_shuffle_epi32(one, _MM_PERM_BADC),
                                     _mm512_clmulepi64_epi128(polynomial, one, 0x01), 0x96);
  }

  __m128i sum() const {
    const __m512i lanes = reduced();
    const __m256i two =
        _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
  }
};

__m512i load(const void* from) { return _mm512_loadu_si512(from); }

// Of four vectors, which are added in turn.
class StrideHash {
 public:
  StrideHash(const uint8_t* from, __m128i before, const __m512i (&powers)[4])
      : from_(from), before_(_mm512_zextsi128_si512(before)), powers_(powers) {}
  void add(size_t i) {
    product_.add(_mm512_xor_si512(reverse(load(from_ + i * kVector)), before_), powers_[i]);
    before_ = _mm512_setzero_si512();
  }
  __m128i sum() const { return product_.sum(); }

 private:
  const uint8_t* from_;
  __m512i before_;
  const __m512i (&powers_)[4];
  Product product_;
};

// What is hashed, and by which counter what comes next is encrypted.
class Message {
 public:
  Message(const Key& key, const uint8_t* nonce) : key_(key) {
    for (size_t i = 0; i < kRounds; ++i) {
      rounds_[i] =
          _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(key.rounds[i])));
    }
    alignas(16) uint8_t block[kBlock] = {};
    for (size_t i = 0; i < kNonce; ++i) block[i] = nonce[i];
    block[kBlock - 1] = 1;
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(block)));
    // Counters are the last four bytes, and now the first: a sum does not carry into the nonce.
    counters_ = _mm512_add_epi32(reverse(first), _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0));
    mask_ = _mm512_castsi512_si128(next_keystream(1));
  }

  void hash(__m512i blocks, size_t count) {
    Product product;
    product.add(_mm512_xor_si512(reverse(blocks), _mm512_zextsi128_si512(hash_)),
                load(key_.powers[16 - count]));
    hash_ = product.sum();
  }

  template <bool kEncrypts>
  void crypt(const Piece& piece) {
    const size_t strided = piece.bytes / kStride * kStride;
    if (strided > 0) crypt_strides<kEncrypts>({piece.from, piece.to, strided});
    for (size_t at = strided; at < piece.bytes; at += kVector) {
      const size_t bytes = piece.bytes - at < kVector ? piece.bytes - at : kVector;
      const __mmask64 mask = ~uint64_t{0} >> (kVector - bytes);
      const size_t blocks = (bytes + kBlock - 1) / kBlock;
      const __m512i in = _mm512_maskz_loadu_epi8(mask, piece.from + at);
      const __m512i out = _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(in, next_keystream(blocks)));
      _mm512_mask_storeu_epi8(piece.to + at, mask, out);
      hash(kEncrypts ? out : in, blocks);
    }
  }

  void end(size_t header_bytes, size_t bytes, uint8_t* tag) {
    const __m128i lengths =
        _mm_set_epi64x(static_cast<int64_t>(__builtin_bswap64(bytes * 8)),
                       static_cast<int64_t>(__builtin_bswap64(header_bytes * 8)));
    hash(_mm512_zextsi128_si512(lengths), 1);
    const __m128i reversed = _mm512_castsi512_si128(reverse(_mm512_zextsi128_si512(hash_)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(tag), _mm_xor_si128(reversed, mask_));
  }

 private:
  static constexpr size_t kRounds = 11;

  __m512i next_keystream(size_t blocks) {
    __m512i stream = _mm512_xor_si512(reverse(counters_), rounds_[0]);
    for (size_t i = 1; i < kRounds - 1; ++i) stream = _mm512_aesenc_epi128(stream, rounds_[i]);
    count(blocks);
    return _mm512_aesenclast_epi128(stream, rounds_[kRounds - 1]);
  }

  void count(size_t blocks) {
    const __m128i added = _mm_cvtsi32_si128(static_cast<int>(blocks));
    counters_ = _mm512_add_epi32(counters_, _mm512_broadcast_i32x4(added));
  }

  // Hashes what is encrypted one stride later, when it does not have to be waited for.
  template <bool kEncrypts>
  void crypt_strides(const Piece& piece) {
    const __m512i powers[4] = {load(key_.powers[0]), load(key_.powers[4]), load(key_.powers[8]),
                               load(key_.powers[12])};
    size_t at = 0;
    if (kEncrypts) {
      crypt_stride(piece.from, piece.to, [](size_t) {});
      at = kStride;
    }
    for (; at < piece.bytes; at += kStride) {
      StrideHash hash(kEncrypts ? piece.to + at - kStride : piece.from + at, hash_, powers);
      crypt_stride(piece.from + at, piece.to + at, [&](size_t i) { hash.add(i); });
      hash_ = hash.sum();
    }
    if (kEncrypts) {
      StrideHash hash(piece.to + at - kStride, hash_, powers);
      for (size_t i = 0; i < 4; ++i) hash.add(i);
      hash_ = hash.sum();
    }
  }

  // Calls `between(0)` to `between(3)` between rounds.
  template <typename Between>
  void crypt_stride(const uint8_t* from, uint8_t* to, Between between) {
    __m512i stream[4];
    for (__m512i& each : stream) {
      each = _mm512_xor_si512(reverse(counters_), rounds_[0]);
      count(4);
    }
    for (size_t round = 1; round < kRounds - 1; ++round) {
      for (__m512i& each : stream) each = _mm512_aesenc_epi128(each, rounds_[round]);
      if (round % 2 == 1 && round < 8) between(round / 2);
    }
    for (size_t i = 0; i < 4; ++i) {
      const __m512i key = _mm512_aesenclast_epi128(stream[i], rounds_[kRounds - 1]);
      _mm512_storeu_si512(to + i * kVector, _mm512_xor_si512(load(from + i * kVector), key));
    }
  }

  const Key& key_;
  __m512i rounds_[kRounds];
  __m512i counters_;  // the next four, bytes in reverse
  __m128i mask_;      // of the tag
  __m128i hash_ = _mm_setzero_si128();
};

template <bool kEncrypts>
void crypt(const Key& key, const uint8_t* nonce, Piece header, const Pieces& pieces, uint8_t* tag) {
  Message message(key, nonce);
  const __mmask64 mask = (uint64_t{1} << header.bytes) - 1;
  message.hash(_mm512_maskz_loadu_epi8(mask, header.from), 1);
  message.crypt<kEncrypts>(pieces.first);
  message.crypt<kEncrypts>(pieces.second);
  message.end(header.bytes, pieces.first.bytes + pieces.second.bytes, tag);
}

template <int kConstant>
__m128i next_round(__m128i key) {
  const __m128i word = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xff);
  for (int i = 0; i < 3; ++i) key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  return _mm_xor_si128(key, word);
}

// Multiplied by x, for the shift that reverse() tells of.
__m128i shifted(__m128i block) {
  const auto low = static_cast<uint64_t>(_mm_extract_epi64(block, 0));
  const auto high = static_cast<uint64_t>(_mm_extract_epi64(block, 1));
  const uint64_t carried = 0 - (high >> 63);
  return _mm_set_epi64x(
      static_cast<int64_t>((high << 1 | low >> 63) ^ (carried & 0xc200000000000000)),
      static_cast<int64_t>(low << 1 ^ (carried & 1)));
}

}  // namespace

void expand(const uint8_t* key, Key& into) {
  auto* const rounds = reinterpret_cast<__m128i*>(into.rounds);
  __m128i round = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
  rounds[0] = round;
  rounds[1] = round = next_round<0x01>(round);
  rounds[2] = round = next_round<0x02>(round);
  rounds[3] = round = next_round<0x04>(round);
  rounds[4] = round = next_round<0x08>(round);
  rounds[5] = round = next_round<0x10>(round);
  rounds[6] = round = next_round<0x20>(round);
  rounds[7] = round = next_round<0x40>(round);
  rounds[8] = round = next_round<0x80>(round);
  rounds[9] = round = next_round<0x1b>(round);
  rounds[10] = next_round<0x36>(round);

  __m128i hash_key = rounds[0];  // of a block of zeros
  for (int i = 1; i < 10; ++i) hash_key = _mm_aesenc_si128(hash_key, rounds[i]);
  hash_key = _mm_aesenclast_si128(hash_key, rounds[10]);
  hash_key = shifted(_mm512_castsi512_si128(reverse(_mm512_zextsi128_si512(hash_key))));
  auto* const powers = reinterpret_cast<__m128i*>(into.powers);
  for (int i = 16; i < 19; ++i) powers[i] = _mm_setzero_si128();
  __m128i power = hash_key;
  for (int i = 15; i >= 0; --i) {
    powers[i] = power;
    Product product;
    product.add(_mm512_zextsi128_si512(power), _mm512_zextsi128_si512(hash_key));
    power = product.sum();
  }
}

void encrypt(const Key& key, const uint8_t* nonce, Piece header, const Pieces& pieces,
             uint8_t* tag) {
  crypt<true>(key, nonce, header, pieces, tag);
}

void decrypt(const Key& key, const uint8_t* nonce, Piece header, const Pieces& pieces,
             uint8_t* tag) {
  crypt<false>(key, nonce, header, pieces, tag);
}

}  // namespace tutti::gcm_avx512
