#include "base/names.h"

#include <cctype>

#include "base/text.h"

namespace tutti {
namespace {

std::string plain(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c == '-' || c == '_') continue;
    letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) { return plain(a) == plain(b); }

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string close = nearest(word, known);
  return close.empty() ? "" : cat("did you mean ", close, "? ");
}

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += cat(list.empty() ? "" : ", ", name);
  return list;
}

}  // namespace tutti
