// A GPT-2 tokenizer of 263 tokens, for tests that cannot rely on the real one.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::training {

// Returns the UTF-8 text of the character by which GPT-2's vocabulary represents a byte.
inline std::string character_of(int byte) {
  static const std::vector<int> code_points = [] {
    std::vector<int> points(256);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      points[b] = own ? b : next++;
    }
    return points;
  }();
  const int point = code_points[byte];
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
}

// The tokens after the 256 single-byte tokens; the ID of a byte's token is the byte.
inline const std::vector<std::string> kMore = {"he", "ll", "hell", "Ġw", "or", "aa", "lo"};
inline constexpr const char* kMerges = "#version: 0.2\nh e\nl l\nhe ll\nĠ w\no r\na a\nl o\n";

inline Json tiny_vocabulary() {
  Json ids;
  for (int byte = 0; byte < 256; ++byte) ids[character_of(byte)] = byte;
  for (size_t i = 0; i < kMore.size(); ++i) ids[kMore[i]] = 256 + i;
  return ids;
}

}  // namespace tutti::training
