#include "base/printable.h"

namespace tutti {

namespace {

std::string in_ascii(std::string_view text, size_t longest, bool for_quotes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string result;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      result += "\\n";
    } else if (byte < ' ' || byte > '~') {
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      if (for_quotes && (c == '"' || c == '\\')) result += '\\';
      result += c;
    }
  }
  return text.size() > longest ? result + "..." : result;
}

}  // namespace

std::string printable(std::string_view text, size_t longest) {
  return in_ascii(text, longest, false);
}

std::string in_quotes(std::string_view text) { return '"' + in_ascii(text, 120, true) + '"'; }

}  // namespace tutti
