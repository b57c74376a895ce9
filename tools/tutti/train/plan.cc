#include "tools/tutti/train/plan.h"

#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "tools/tutti/simulate/setup.h"
#include "tools/tutti/train/report.h"

namespace tutti::tool {

namespace planner = training::planner;

planner::Plans search_showing_progress(planner::LocalQuestion question) {
  struct Shown {
    ~Shown() { end_progress(); }
  } const shown;
  question.progress = [](size_t number, size_t of) {
    show_progress("pricing layouts", static_cast<double>(number) / static_cast<double>(of));
  };
  return planner::search_locally(question);
}

std::vector<std::string> take_plan(training::RunOptions& run, int ranks, bool prints) {
  const planner::Plans plans = search_showing_progress({.run = run, .ranks = ranks});
  const planner::PlannedLayout& best = plans.layouts.front();
  const auto bytes = static_cast<int64_t>(best.memory.total());
  if (!best.fits) {
    throw Error(ErrorCode::unsupported, "no layout fits in memory",
                {.where = "--plan auto",
                 .cause = cat("the layout that comes closest, ", to_text(best.layout), ", needs ",
                              readable_bytes(bytes), " per rank"),
                 .remedy = "train a smaller model or use fewer ranks"});
  }
  if (prints) {
    std::printf(
        "plan             %s: %.2f ms per step predicted (%.2f to %.2f), %s per rank; %zu "
        "layouts\n",
        to_text(best.layout).c_str(), 1e3 * best.time.total(), 1e3 * best.seconds.low,
        1e3 * best.seconds.high, readable_bytes(bytes).c_str(), plans.considered);
    std::fflush(stdout);
  }
  run = with_layout(run, best.layout);
  std::vector<std::string> options = train_options(best.layout);
  options.emplace_back("--plan=none");
  return options;
}

}  // namespace tutti::tool
