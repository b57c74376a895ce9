// Tables of values between commas (RFC 4180): values in double quotes may hold commas, line ends
// and, written twice, quotes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct CsvRow {
  size_t line = 1;  // on which it begins
  std::vector<std::string> values;
};

// Skips empty lines. Throws Error(invalid_argument) for a quote that is not closed.
std::vector<CsvRow> parse_csv(std::string_view text);

}  // namespace tutti
