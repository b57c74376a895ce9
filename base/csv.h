// Comma-separated values (RFC 4180): quoted values may contain commas, line ends and doubled
// quotes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct CsvRow {
  size_t line = 1;  // line number at which the row begins
  std::vector<std::string> values;
};

// Returns the rows, without empty lines. Throws Error(invalid_argument) for an unclosed quote.
std::vector<CsvRow> parse_csv(std::string_view text);

}  // namespace tutti
