#include "topology/host_list.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tutti {

namespace {

// Maximum length of a list, to bound memory; longer ones are mistakes.
constexpr size_t kMostHosts = 1 << 17;
constexpr size_t kLongestName = 255;

Error malformed(std::string_view what, std::string_view text, std::string_view why) {
  return Error(ErrorCode::invalid_argument, cat("invalid list of ", what, " '", text, "': ", why),
               {.remedy = "write hosts as node[01-03,7],other, and numbers as 2(x3),1"});
}

// Expands "01-03,7" to 01, 02, 03, 7. Leading zeros give each number of a range at least as many
// digits as the first one has.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view text) {
  std::vector<std::string> numbers;
  for (const std::string& range : split(ranges, ',')) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    const std::optional<uint64_t> from = parse_number<uint64_t>(first);
    const std::optional<uint64_t> to = parse_number<uint64_t>(last);
    if (!from || !to || *from > *to) throw malformed("hosts", text, cat("[", ranges, "]"));
    if (*to - *from >= kMostHosts - numbers.size() || first.size() > kLongestName) {
      throw malformed("hosts", text, "the list is too long");
    }
    for (uint64_t i = 0; i <= *to - *from; ++i) {  // avoids overflow above the last value
      std::string digits = std::to_string(*from + i);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
  }
  if (numbers.empty()) throw malformed("hosts", text, "[]");
  return numbers;
}

// Expands one entry of the list, which may have brackets.
std::vector<std::string> expand_entry(std::string_view entry, std::string_view text) {
  std::vector<std::string> names = {""};
  while (!entry.empty()) {
    const size_t open = entry.find('[');
    for (std::string& name : names) {
      name += entry.substr(0, open);
      if (name.size() > kLongestName) throw malformed("hosts", text, "a name is too long");
    }
    if (open == std::string_view::npos) break;
    const size_t close = entry.find(']', open);
    if (close == std::string_view::npos) throw malformed("hosts", text, "a [ without ]");
    std::vector<std::string> longer;
    const auto numbers = expand_ranges(entry.substr(open + 1, close - open - 1), text);
    if (names.size() * numbers.size() > kMostHosts) {
      throw malformed("hosts", text, "the list is too long");
    }
    for (const std::string& name : names) {
      for (const std::string& digits : numbers) longer.push_back(name + digits);
    }
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text) {
  std::vector<std::string> hosts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') inside = true;
    if (i < text.size() && text[i] == ']') inside = false;
    if (i < text.size() && (text[i] != ',' || inside)) continue;
    const std::string_view entry = text.substr(begin, i - begin);
    begin = i + 1;
    if (entry.empty()) throw malformed("hosts", text, "a name is empty");
    for (std::string& name : expand_entry(entry, text)) hosts.push_back(std::move(name));
    if (hosts.size() > kMostHosts) throw malformed("hosts", text, "the list is too long");
  }
  return hosts;
}

std::vector<int> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& entry : split(text, ',')) {
    const size_t open = entry.find("(x");
    const bool repeated = open != std::string::npos && entry.back() == ')';
    const auto count = parse_number<uint64_t>(std::string_view(entry).substr(0, open));
    const auto times = repeated ? parse_number<uint64_t>(std::string_view(entry).substr(
                                      open + 2, entry.size() - open - 3))
                                : std::optional<uint64_t>(open == std::string::npos ? 1 : 0);
    if (!count || !times || *times == 0 || *count > kMostHosts ||
        *times > kMostHosts - counts.size()) {
      throw malformed("numbers", text, cat("'", entry, "'"));
    }
    counts.insert(counts.end(), *times, static_cast<int>(*count));
  }
  if (counts.empty()) throw malformed("numbers", text, "the list is empty");
  return counts;
}

}  // namespace tutti
