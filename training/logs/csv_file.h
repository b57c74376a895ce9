// Numbers by step as comma-separated values (RFC 4180): a line of names, then a line a step.
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
  // The first column is "step". A run that goes on after step `after` adds lines to a file of the
  // same columns, and drops those of later steps; a new one begins the file anew. Either happens
  // with its first line only. Throws Error(system) where it cannot be written,
  // Error(invalid_argument) where it goes on and the file has other columns.
  CsvFile(std::string path, std::vector<std::string> columns, std::optional<uint64_t> after);

  // A line, on the disk when it returns as far as this process is concerned. What is not given or
  // no number is an empty field; values without a column throw Error(internal).
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
