#include "training/logs/csv_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/text.h"
#include "training/core/number_text.h"
#include "training/logs/keep_lines.h"

namespace tutti::training {
namespace {

std::string header_of(const std::vector<std::string>& columns) {
  std::string header = "step";
  for (const std::string& column : columns) header += ',' + column;
  return header;
}

std::string text_of(double value) { return std::isfinite(value) ? shortest_text(value) : ""; }

}  // namespace

CsvFile::CsvFile(std::string path, std::vector<std::string> columns, std::optional<uint64_t> after)
    : path_(std::move(path)), columns_(std::move(columns)), after_(after) {
  errno = 0;
  file_.open(path_, std::ios::app);
  if (!file_) {
    throw system_error(cat("cannot write ", path_), errno,
                       {.remedy = "use a file in a directory with write permission"});
  }
  if (!after_) return;
  const std::string text = file_text(path_, FileKind::losses);
  if (text.find('\n') == std::string::npos) after_.reset();
  if (!after_ || text.starts_with(header_of(columns_) + '\n')) return;
  throw Error(
      ErrorCode::invalid_argument, cat(path_, " has different columns from those of this run"),
      {.cause = "another program or an earlier version wrote it", .remedy = "use another file"});
}

void CsvFile::begin() {
  if (!after_) {
    file_.close();
    file_.open(path_, std::ios::out);
    return append(header_of(columns_));
  }
  keep_lines(path_, [&](std::string_view line) {
    uint64_t step = 0;  // remains 0 for the header line, which is therefore kept
    std::from_chars(line.data(), line.data() + line.size(), step);
    return step <= *after_;
  });
}

void CsvFile::write(const Scalars& scalars) {
  if (!std::exchange(begun_, true)) begin();
  std::vector<std::string> fields(columns_.size());
  for (const auto& [name, value] : scalars.values) {
    const auto column = std::ranges::find(columns_, name);
    if (column == columns_.end())
      throw Error(ErrorCode::internal, cat("there is no column for ", name));
    fields[static_cast<size_t>(column - columns_.begin())] = text_of(value);
  }
  std::string line = std::to_string(scalars.step);
  for (const std::string& field : fields) line += ',' + field;
  append(line);
}

void CsvFile::append(const std::string& line) {
  errno = 0;
  file_ << line << '\n' << std::flush;
  if (!file_) throw system_error(cat("cannot write ", path_), errno);
}

}  // namespace tutti::training
