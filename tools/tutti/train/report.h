// Prints the console output of `tutti train`.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "training/run/trainer.h"
#include "training/setup/options.h"

namespace tutti::tool {

// The progress line of each step, at most as wide as the terminal or 80 columns. Lines are
// permanent every `log_every` steps (0: every tenth of the run) and if they show a validation. On a
// terminal, the next line overwrites a line that is not permanent. Without a terminal, only
// permanent lines are printed.
class Progress {
 public:
  struct Options {
    std::string unit;  // unit of the rate: "samples" or "tokens"
    double units_per_sample = 1;
    double peak = 1;  // peak operations per second of all ranks' processors
    int columns = 0;  // columns of the terminal; 0: there is no terminal
    uint64_t log_every = 0;
  };
  explicit Progress(Options options) : o_(std::move(options)) {}

  void show(const training::StepReport& report);
  // Returns the line without control characters, in at most `columns` characters; the least
  // important parts are omitted first.
  std::string line(const training::StepReport& report, size_t columns) const;

 private:
  bool stays(const training::StepReport& report) const;

  const Options o_;
  uint64_t first_ = 0;  // first step shown
  std::chrono::nanoseconds next_{0};
};

// Prints the memory of rank `rank`. `process_bytes`: proportional set size of the process.
void print_memory(const training::MemoryReport& memory, int64_t process_bytes, int rank = 0);
// Prints a line for each digest, with the ranks that have it.
void print_digests(const std::vector<std::string>& digests);
void print_factors(const std::vector<training::FactorTraffic>& layers);
void print_pipeline(const training::PipelineReport& report,
                    const training::PipelineOptions& options, const training::Model& model);
// Returns a size as text: "1.2 MB".
std::string readable_bytes(int64_t bytes);

}  // namespace tutti::tool
