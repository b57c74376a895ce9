#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iomanip>

#include "base/error.h"

namespace tutti {

std::string rank_ranges(const std::vector<int>& sorted) {
  std::ostringstream out;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (i > 0) out << ',';
    out << sorted[i];
    if (last > i) out << (last == i + 1 ? ',' : '-') << sorted[last];
    i = last + 1;
  }
  return out.str();
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::ostringstream out;
  out << std::setprecision(value < 10 ? 2 : (value < 100 ? 3 : 4)) << value << ' ' << kUnits[unit];
  return out.str();
}

uint64_t parse_bytes(std::string_view text) {
  uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  static constexpr std::string_view kUnits = "KMGT";
  int shift = 0;
  bool good = status == std::errc{};
  if (good && !unit.empty() && unit != "B") {
    const size_t power = kUnits.find(unit[0]);
    good = power != std::string_view::npos &&
           (unit.size() == 1 || unit.substr(1) == "B" || unit.substr(1) == "IB");
    shift = static_cast<int>(10 * (power + 1));
  }
  if (!good || (shift > 0 && value > (UINT64_MAX >> shift))) {
    throw Error(ErrorCode::invalid_argument, cat("'", text, "' is not a size in bytes"),
                {.remedy = "write a whole number with an optional K, M, G or T, for example 64K"});
  }
  return value << shift;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // One that contains the word is the best of equally near candidates: bxor for xor, not bor.
  std::pair least{std::max<size_t>(2, word.size() / 3) + 1, false};
  for (const std::string& candidate : candidates) {
    const bool differs = candidate.find(word) == candidate.npos;
    if (const std::pair distance{edit_distance(word, candidate), differs}; distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tutti
