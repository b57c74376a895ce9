// Numbers by step as comma-separated values (RFC 4180): a header line, then a line per step.
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
  // The first column is "step". A run that continues after step `after` appends to a file of the
  // same columns and removes lines of later steps; a new run overwrites the file. Both happen at
  // the first line only. Throws Error(system) if the file cannot be written,
  // Error(invalid_argument) if the run continues and the file has other columns.
  CsvFile(std::string path, std::vector<std::string> columns, std::optional<uint64_t> after);

  // Writes and flushes a line. Missing values and NaNs are empty fields; values without a column
  // throw Error(internal).
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
