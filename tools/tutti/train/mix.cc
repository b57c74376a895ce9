#include "tools/tutti/train/mix.h"

#include <cstdio>

#include "base/text.h"
#include "training/planner/local/mix_search.h"

namespace tutti::tool {

using training::LayerSplit;
using training::Mix;

std::vector<std::string> take_mix(training::RunOptions& run, int ranks, bool prints) {
  const training::planner::MixCosts costs = training::planner::measured_mix_costs(run, ranks);
  const Mix mix = costs.cheapest();
  if (prints) {
    const double all_batch = costs.seconds_of(Mix(costs.layers(), LayerSplit::batch));
    const double all_model = costs.seconds_of(Mix(costs.layers(), LayerSplit::model));
    std::printf("mix              %s: %.3f ms a step predicted (all b %.3f, all m %.3f)\n",
                to_text(mix).c_str(), 1e3 * costs.seconds_of(mix), 1e3 * all_batch,
                1e3 * all_model);
    std::fflush(stdout);
  }
  run = training::planner::with_mix(run, mix);
  return {"--mix=" + run.mix};
}

}  // namespace tutti::tool
