// The files that `tutti train` writes each step's numbers to.
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

// As the step after which a run goes on: no line of the files is void.
inline constexpr std::optional<uint64_t> kWholeFile = std::numeric_limits<uint64_t>::max();

// A run that goes on adds to what is there, but for lines of steps that it does again; a new one
// begins the files anew. Neither happens before it has something to say: a run that is refused
// takes nothing away.
class TrainFiles {
 public:
  struct Paths {
    std::string json;         // --json; each empty: none
    std::string csv;          // --csv
    std::string tensorboard;  // --tensorboard: a directory
  };

  // `columns`: what CSV lines may have (training::scalar_names). `after`: the step that the run
  // goes on from; none: it is a new one. Throws Error(system) where a file cannot be written.
  TrainFiles(const Paths& paths, const std::vector<std::string>& columns,
             std::optional<uint64_t> after);

  // A step's line, or at the end the summary: its numbers are the last step's. A process that dies
  // leaves what was written.
  void write(uint64_t step, const Json& line);
  // An event between two steps: a line of the JSON file alone.
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
