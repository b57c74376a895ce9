// Writes numbers by step as comma-separated values (RFC 4180): a header line, then a line per step.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "training/logs/scalars.h"

namespace tutti::training {

class CsvFile {
 public:
  // Opens a file whose first column is "step", followed by `columns`. If `after` is set, the run
  // continues after that step: it appends to an existing file, which must have the same columns,
  // and removes lines of later steps. A new run overwrites the file. The constructor does not yet
  // change an existing file; writing the first line does. Throws Error(system) if the file cannot
  // be written, Error(invalid_argument) if the run continues and the file has other columns.
  CsvFile(std::string path, std::vector<std::string> columns, std::optional<uint64_t> after);

  // Writes and flushes a line. Missing values, NaNs and infinities are empty fields; a value
  // without a column throws Error(internal).
  void write(const Scalars& scalars);

 private:
  void begin();
  void append(const std::string& line);

  std::string path_;
  std::vector<std::string> columns_;
  std::optional<uint64_t> after_;
  bool begun_ = false;
  std::ofstream file_;
};

}  // namespace tutti::training
