#include "collectives/cluster/fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "collectives/cluster/predict.h"

namespace tutti {

namespace {

constexpr double kUsualError =
    0.1;  // relative error of a usual measurement; larger errors have reduced weight

// A parameter, or a few that are scaled together. `spread`: prior standard deviation of the
// logarithm of the factor.
struct Knob {
  std::vector<double*> values;
  double spread;
};

std::vector<Knob> knobs_of(Cluster& c) {
  const auto quick = [](ClusterLink& link) {  // step times of ll and ll128
    return std::vector<double*>{&link.step_us[0], &link.step_us[1]};
  };
  return {{{&c.launch_us}, 0.7},
          {quick(c.inside), 0.5},
          {{&c.inside.step_us[2]}, 0.5},
          {{&c.inside.GBps}, 0.5},
          {{&c.inside.ll_GBps, &c.between.ll_GBps}, 0.5},
          {{&c.inside.message_us}, 1},
          {{&c.inside.all_to_all}, 0.5},
          {quick(c.between), 0.7},
          {{&c.between.step_us[2]}, 0.7},
          {{&c.between.GBps}, 1},
          {{&c.between.message_us}, 1},
          {{&c.between.all_to_all}, 0.5},
          {{&c.sums_GBps}, 0.3},
          {{&c.sums_us}, 0.7}};
}

// Returns log(measured / predicted) of a call, on the cluster with the call's number of hosts and
// GPUs.
double log_error(Cluster& cluster, const MeasuredCall& call) {
  cluster.hosts = call.hosts;
  cluster.gpus = call.gpus;
  return std::log(call.us / predict(cluster, call.collective, call.bytes).time_us);
}

class Fit {
 public:
  Fit(const Cluster& prior, std::span<const MeasuredCall> calls) : prior_(prior), calls_(calls) {}

  Cluster best() {
    constexpr double kFar = 0.4;
    double least = 0;
    std::vector<double> best;
    for (const double begin : {0.0, kFar, -kFar}) {
      std::vector<double> moved(knobs_of(prior_).size(), begin);
      const double cost = descend(moved);
      if (best.empty() || cost < least) {
        least = cost;
        best = moved;
      }
    }
    return at(best);
  }

 private:
  Cluster at(const std::vector<double>& moved) const {
    Cluster cluster = prior_;
    const std::vector<Knob> knobs = knobs_of(cluster);
    for (size_t i = 0; i < knobs.size(); ++i) {
      for (double* const value : knobs[i].values) *value *= std::exp(moved[i]);
    }
    return cluster;
  }

  double cost(const std::vector<double>& moved) {
    Cluster cluster = at(moved);
    const std::vector<Knob> knobs = knobs_of(prior_);
    double sum = 0;
    for (size_t i = 0; i < moved.size(); ++i) sum += std::pow(moved[i] / knobs[i].spread, 2);
    for (const MeasuredCall& call : calls_) {
      const double error = log_error(cluster, call) / kUsualError;
      sum += 2 * (std::sqrt(1 + error * error) - 1);
    }
    return sum;
  }

  // Minimises the error by coordinate descent with decreasing step size. The minimum over several
  // algorithms has kinks, at which derivatives are of little use.
  double descend(std::vector<double>& moved) {
    constexpr double kFirstStep = 0.4;
    constexpr double kLastStep = 0.005;
    double least = cost(moved);
    for (double step = kFirstStep; step > kLastStep; step /= 2) {
      for (bool better = true; better;) {
        better = false;
        for (double& value : moved) {
          for (const double by : {step, -step}) {
            value += by;
            const double now = cost(moved);
            if (now < least - 1e-9) {
              least = now;
              better = true;
              break;
            }
            value -= by;
          }
        }
      }
    }
    return least;
  }

  Cluster prior_;
  std::span<const MeasuredCall> calls_;
};

PredictionErrors errors_left(Cluster cluster, std::span<const MeasuredCall> calls) {
  constexpr PredictionErrors kUsual = {{0.4, 0.25, 0.1}};
  ErrorTally tally;
  for (const MeasuredCall& call : calls) tally.add(call.bytes, log_error(cluster, call));
  return tally.errors(kUsual);
}

}  // namespace

std::array<double, 3> mean_errors(Cluster cluster, std::span<const MeasuredCall> calls) {
  std::array<double, 3> sums = {};
  std::array<double, 3> count = {};
  for (const MeasuredCall& call : calls) {
    const size_t size = PredictionErrors::size_class(call.bytes);
    sums[size] += std::abs(std::exp(-log_error(cluster, call)) - 1);
    ++count[size];
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= count[i];
  return sums;
}

Cluster fit(const Cluster& prior, std::span<const MeasuredCall> calls) {
  Cluster fitted = Fit(prior, calls).best();
  fitted.errors = errors_left(fitted, calls);
  for (const MeasuredCall& call : calls) {
    fitted.hosts = std::max(fitted.hosts, call.hosts);
    fitted.gpus = std::max(fitted.gpus, call.gpus);
  }
  return fitted;
}

}  // namespace tutti
