// The parts of UTF-8 that tokenizers need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::training {

// Returns true unless the byte continues a character.
constexpr bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }

// Returns the number of bytes of the first character of a non-empty text; 1 if it is not UTF-8.
constexpr size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t size = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
  if (size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i) {
    if (begins_character(text[i])) return 1;
  }
  // Rejects overlong forms, surrogates, and code points above U+10FFFF.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90)) {
    return 1;
  }
  return size;
}

}  // namespace tutti::training
