#include "base/csv.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti {

std::vector<CsvRow> parse_csv(std::string_view text) {
  std::vector<CsvRow> rows;
  CsvRow row;
  std::string value;
  size_t line = 1;
  bool quoted = false;
  const auto end_row = [&] {
    row.values.push_back(std::move(value));
    value.clear();
    if (row.values.size() > 1 || !row.values[0].empty()) rows.push_back(std::move(row));
    row = {.line = line, .values = {}};
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted) {
      const bool twice = c == '"' && i + 1 < text.size() && text[i + 1] == '"';
      if (c != '"' || twice) value += c;
      if (twice) ++i;
      quoted = c != '"' || twice;
    } else if (c == '"' && value.empty()) {
      quoted = true;
    } else if (c == ',') {
      row.values.push_back(std::move(value));
      value.clear();
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      value += c;
    }
  }
  if (quoted) {
    throw Error(ErrorCode::invalid_argument,
                cat("line ", row.line, " opens a quote that is never closed"));
  }
  if (!value.empty() || !row.values.empty()) end_row();
  return rows;
}

}  // namespace tutti
