// Fuzzes tables of measured training runs (`tutti plan --predict`): accepted rows are predicted.
#include <cmath>

#include "tests/fuzz/target.h"
#include "training/planner/measured_runs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::take("", [&] {
    for (const training::planner::MeasuredRun& run :
         training::planner::read_measured_runs(text, "runs.csv")) {
      if (!run.reason.empty()) continue;
      const training::planner::RunPrediction prediction = predict(run, {});
      const double seconds = prediction.time.total();
      fuzz::require(std::isfinite(seconds) && seconds >= 0, "a step takes a time");
      fuzz::require(std::isfinite(prediction.memory.total()), "a rank needs memory");
    }
  });
  return 0;
}
