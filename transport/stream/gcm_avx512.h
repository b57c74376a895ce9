// AES-128-GCM by the instructions that work on four blocks at a time (VAES, VPCLMULQDQ, AVX-512),
// for x86-64. How long it takes depends neither on the key nor on what is encrypted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::gcm_avx512 {

struct Key {
  alignas(64) uint8_t rounds[11][16];
  // Of the hash's key, the 16th first, then zeros.
  alignas(64) uint8_t powers[16 + 3][16];
};

struct Piece {
  const uint8_t* from;
  uint8_t* to;  // may be the same
  size_t bytes;
};

// A message is two pieces, of which the first has whole blocks.
struct Pieces {
  Piece first;
  Piece second;
};

void expand(const uint8_t* key, Key& into);
// The nonce has 12 bytes, the header at most 16, the tag becomes 16.
void encrypt(const Key& key, const uint8_t* nonce, Piece header, const Pieces& pieces,
             uint8_t* tag);
void decrypt(const Key& key, const uint8_t* nonce, Piece header, const Pieces& pieces,
             uint8_t* tag);

}  // namespace tutti::gcm_avx512
