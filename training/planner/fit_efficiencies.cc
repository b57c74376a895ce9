// Fits efficiencies by coordinate descent on a robust cost: the pseudo-Huber loss of each run's log
// error divided by the usual error of such runs, plus the squared distance of each knob from the
// centre of its prior, in spreads.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/text.h"
#include "training/planner/measured_runs.h"

namespace tutti::training::planner {

namespace {

class Search {
 public:
  explicit Search(std::vector<const MeasuredRun*> runs) : runs_(std::move(runs)) {
    for (size_t i = 0; i < kKnobs; ++i) at_[i] = 0;
  }

  Efficiencies run() {
    double least = cost();
    for (double step = 0.8; step > 0.02; step /= 2) {
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < kKnobs; ++i) moved |= improve(i, step, least);
      }
    }
    return efficiencies();
  }

 private:
  Efficiencies efficiencies() const {
    Efficiencies e;
    for (size_t i = 0; i < kKnobs; ++i) {
      const KnobInfo& knob = info(static_cast<Knob>(i));
      e[static_cast<Knob>(i)] = knob.expected * std::exp(at_[i] * knob.spread);
    }
    return e;
  }

  double cost() const {
    const Efficiencies e = efficiencies();
    double sum = 0;
    for (const double at : at_) sum += at * at;
    for (const MeasuredRun* run : runs_) {
      const double usual = run->job.model.experts.count > 0 ? 0.25 : 0.08;
      const double error = std::log(predict(*run, e).time.total() / *run->seconds) / usual;
      sum += 2 * (std::sqrt(1 + error * error) - 1);
    }
    return sum;
  }

  bool improve(size_t knob, double step, double& least) {
    for (const double by : {step, -step}) {
      const double before = at_[knob];
      at_[knob] += by;
      const double now = cost();
      if (now < least - 1e-4) {
        least = now;
        return true;
      }
      at_[knob] = before;
    }
    return false;
  }

  std::vector<const MeasuredRun*> runs_;
  std::array<double, kKnobs> at_;  // distances from the priors, in spreads
};

}  // namespace

FittedEfficiencies fit_efficiencies(const std::vector<MeasuredRun>& runs) {
  std::vector<const MeasuredRun*> used;
  for (const MeasuredRun& run : runs) {
    if (run.calibrates && run.reason.empty() && run.seconds) used.push_back(&run);
  }
  FittedEfficiencies fitted;
  fitted.runs = used.size();
  fitted.efficiencies = Search(used).run();
  for (const MeasuredRun* run : used) {
    const RunPrediction now = predict(*run, fitted.efficiencies);
    if (now.seconds.low <= *run->seconds && *run->seconds <= now.seconds.high) continue;
    fitted.misfits.push_back(
        cat("run ", run->id, ": ", now.time.total(), " s predicted, ", *run->seconds, " measured"));
  }
  return fitted;
}

}  // namespace tutti::training::planner
