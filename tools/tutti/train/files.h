// Writes each step's metrics to the files of `tutti train`.
#pragma once

#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/logs/csv_file.h"
#include "training/logs/event_file.h"

namespace tutti::tool {

// Value of `after` that keeps all existing lines.
inline constexpr std::optional<uint64_t> kWholeFile = std::numeric_limits<uint64_t>::max();

// Writes the files. A resumed run appends to them, after removing the lines of steps that it
// repeats; a new run truncates them. Files are changed only at the first write, so that a refused
// run changes nothing.
class TrainFiles {
 public:
  struct Paths {
    std::string json;         // path of --json; each path is empty if its option is not given
    std::string csv;          // path of --csv
    std::string tensorboard;  // directory of --tensorboard
  };

  // `columns`: possible CSV columns (training::scalar_names). `after`: step from which the run is
  // resumed; nothing: a new run. Throws Error(system) if a file cannot be written.
  TrainFiles(const Paths& paths, const std::vector<std::string>& columns,
             std::optional<uint64_t> after);

  // Writes a step's line, or the final summary with the last step's metrics. Lines are flushed, so
  // that they survive the death of the process.
  void write(uint64_t step, const Json& line);
  // Writes an event between two steps to the JSON file only.
  void write_event(const Json& line);

 private:
  void write_json(const Json& line);
  void begin_json();

  std::string path_;
  std::optional<uint64_t> after_;
  bool begun_ = false;
  std::ofstream json_;
  std::optional<training::CsvFile> csv_;
  std::optional<training::EventFile> events_;
};

}  // namespace tutti::tool
