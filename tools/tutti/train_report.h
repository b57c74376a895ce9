// What `tutti train` says while it runs and at its end.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "training/setup/options.h"
#include "training/trainer.h"

namespace tutti::tool {

// One line that is rewritten, on a terminal; a line every tenth of the way, elsewhere.
class Progress {
 public:
  // unit: what is counted a second, "samples" or "tokens". peak: what one rank's processor could
  // do, in operations a second.
  Progress(std::string unit, double units_per_sample, double peak, int ranks, bool on_terminal)
      : unit_(std::move(unit)),
        units_per_sample_(units_per_sample),
        peak_(peak * ranks),
        terminal_(on_terminal) {}

  void show(const training::StepReport& report);

 private:
  bool due(const training::StepReport& report);

  std::string unit_;
  double units_per_sample_;
  double peak_;
  bool terminal_;
  uint64_t first_ = 0;  // the first step that was shown
  std::chrono::nanoseconds next_{0};
};

// `process_bytes`: of the process, by proportional set size.
void print_memory(const training::MemoryReport& memory, int64_t process_bytes);
void print_pipeline(const training::PipelineReport& report,
                    const training::PipelineOptions& options, const training::Model& model);
// "1.2 MB"
std::string readable_bytes(int64_t bytes);

}  // namespace tutti::tool
