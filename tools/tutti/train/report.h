// What `tutti train` says while it runs and at its end.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "training/run/trainer.h"
#include "training/setup/options.h"

namespace tutti::tool {

// One line for the step that was done, no wider than the terminal, or than 80 columns. On a
// terminal it is rewritten; lines of every `log_every` steps (0: of every tenth of the way) stay,
// there and elsewhere, and so do those with a validation.
class Progress {
 public:
  struct Options {
    std::string unit;  // what is counted a second: "samples" or "tokens"
    double units_per_sample = 1;
    double peak = 1;  // operations a second that the processors of all ranks could do
    int columns = 0;  // of the terminal; 0: there is none
    uint64_t log_every = 0;
  };
  explicit Progress(Options options) : o_(std::move(options)) {}

  void show(const training::StepReport& report);
  // Without control characters, in at most `columns`: of what is said of the step, what matters
  // least is left out first.
  std::string line(const training::StepReport& report, size_t columns) const;

 private:
  bool stays(const training::StepReport& report) const;

  const Options o_;
  uint64_t first_ = 0;  // the first step that was shown
  std::chrono::nanoseconds next_{0};
};

// `process_bytes`: of the process, by proportional set size.
void print_memory(const training::MemoryReport& memory, int64_t process_bytes, int rank = 0);
// Equal digests in one line, with their ranks.
void print_digests(const std::vector<std::string>& digests);
void print_factors(const std::vector<training::FactorTraffic>& layers);
void print_pipeline(const training::PipelineReport& report,
                    const training::PipelineOptions& options, const training::Model& model);
// "1.2 MB"
std::string readable_bytes(int64_t bytes);

}  // namespace tutti::tool
