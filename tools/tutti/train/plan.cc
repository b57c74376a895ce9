#include "tools/tutti/train/plan.h"

#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "tools/tutti/simulate/setup.h"
#include "tools/tutti/train/report.h"
#include "training/planner/local/local_search.h"

namespace tutti::tool {

namespace planner = training::planner;

std::vector<std::string> take_plan(training::RunOptions& run, int ranks) {
  const planner::Plans plans = planner::search_locally(
      {.run = run, .ranks = ranks, .progress = [](size_t number, size_t of) {
         show_progress("planning", static_cast<double>(number) / static_cast<double>(of));
       }});
  end_progress();
  const planner::PlannedLayout& best = plans.layouts.front();
  const auto bytes = static_cast<int64_t>(best.memory.total());
  if (!best.fits) {
    throw Error(ErrorCode::unsupported, "no layout fits in memory",
                {.where = "--plan auto",
                 .cause = cat("the nearest, ", to_text(best.layout), ", needs ",
                              readable_bytes(bytes), " a rank"),
                 .remedy = "train a smaller model, or on fewer ranks"});
  }
  std::printf(
      "plan             %s: %.3f s a step predicted (%.3f to %.3f), %s a rank; %zu layouts\n",
      to_text(best.layout).c_str(), best.time.total(), best.seconds.low, best.seconds.high,
      readable_bytes(bytes).c_str(), plans.considered);
  std::fflush(stdout);
  run = with_layout(run, best.layout);
  std::vector<std::string> options = train_options(best.layout);
  options.emplace_back("--plan=none");
  return options;
}

}  // namespace tutti::tool
