// Numbers by step as comma-separated values (RFC 4180): a line of names, then a line a step.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "training/logs/scalars.h"

namespace tutti::training {

class CsvFile {
 public:
  // The first column is "step". A run that goes on adds lines to a file of the same columns; a new
  // one begins the file anew, but only with its first line. Throws Error(system) where it cannot be
  // written, Error(invalid_argument) where it goes on and the file has other columns.
  CsvFile(std::string path, std::vector<std::string> columns, bool goes_on);

  // A line, on the disk when it returns as far as this process is concerned. What is not given or
  // no number is an empty field; values without a column throw Error(internal).
  void write(const Scalars& scalars);

 private:
  void begin();
  void append(const std::string& line);

  std::string path_;
  std::vector<std::string> columns_;
  bool goes_on_;
  bool begun_ = false;
  std::ofstream file_;
};

}  // namespace tutti::training
