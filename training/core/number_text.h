// Formats numbers as text that reads back as the same number.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace tutti::training {

// Returns the shortest text that reads back as the same number: 0.1, 1e-05.
inline std::string shortest_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace tutti::training
