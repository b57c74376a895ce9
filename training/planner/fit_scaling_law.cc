#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/mix_bits.h"
#include "base/text.h"
#include "training/planner/scaling_laws.h"

namespace tutti::training::planner {

namespace {

// The parameters that are fitted: log A, log B, log E, alpha, beta.
using Point = std::array<double, 5>;

ScalingLaw law_at(const Point& p) {
  return {.name = "fitted",
          .alpha = p[3],
          .beta = p[4],
          .A = std::exp(p[0]),
          .B = std::exp(p[1]),
          .E = std::exp(p[2])};
}

double huber(double error) {
  constexpr double kDelta = 1e-3;
  const double size = std::abs(error);
  return size <= kDelta ? size * size / 2 : kDelta * (size - kDelta / 2);
}

double cost_of(const Point& p, const std::vector<ScalingRun>& runs) {
  if (p[3] <= 0 || p[4] <= 0) return std::numeric_limits<double>::infinity();
  const ScalingLaw law = law_at(p);
  double sum = 0;
  for (const ScalingRun& run : runs) {
    sum += huber(std::log(law.loss(run.parameters, run.tokens) / run.loss));
  }
  return sum;
}

// Minimizes by the Nelder-Mead simplex method.
Point descend(const Point& start, const std::vector<ScalingRun>& runs, double& least) {
  constexpr size_t kSize = std::tuple_size_v<Point>;
  std::array<Point, kSize + 1> simplex;
  std::array<double, kSize + 1> costs;
  for (size_t i = 0; i <= kSize; ++i) {
    simplex[i] = start;
    if (i < kSize) simplex[i][i] += i < 3 ? 0.5 : 0.05;
    costs[i] = cost_of(simplex[i], runs);
  }
  const auto along = [&](const Point& middle, const Point& worst, double by) {
    Point moved;
    for (size_t k = 0; k < kSize; ++k) moved[k] = middle[k] + by * (middle[k] - worst[k]);
    return moved;
  };
  for (int step = 0; step < 3000; ++step) {
    std::array<size_t, kSize + 1> order;
    for (size_t i = 0; i <= kSize; ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](size_t i) { return costs[i]; });
    const size_t best = order.front();
    const size_t worst = order.back();
    if (costs[worst] - costs[best] < 1e-14) break;
    Point middle = {};
    for (size_t i = 0; i <= kSize; ++i) {
      if (i == worst) continue;
      for (size_t k = 0; k < kSize; ++k) middle[k] += simplex[i][k] / kSize;
    }
    const auto take = [&](const Point& point, double cost) {
      simplex[worst] = point;
      costs[worst] = cost;
    };
    const Point reflected = along(middle, simplex[worst], 1);
    const double cost = cost_of(reflected, runs);
    if (cost < costs[best]) {
      const Point further = along(middle, simplex[worst], 2);
      const double beyond = cost_of(further, runs);
      beyond < cost ? take(further, beyond) : take(reflected, cost);
    } else if (cost < costs[order[kSize - 1]]) {
      take(reflected, cost);
    } else {
      const Point nearer = along(middle, simplex[worst], cost < costs[worst] ? 0.5 : -0.5);
      const double inside = cost_of(nearer, runs);
      if (inside < std::min(cost, costs[worst])) {
        take(nearer, inside);
      } else {
        for (size_t i = 0; i <= kSize; ++i) {
          if (i == best) continue;
          for (size_t k = 0; k < kSize; ++k) {
            simplex[i][k] = (simplex[i][k] + simplex[best][k]) / 2;
          }
          costs[i] = cost_of(simplex[i], runs);
        }
      }
    }
  }
  const auto best = std::ranges::min_element(costs);
  least = *best;
  return simplex[static_cast<size_t>(best - costs.begin())];
}

Point fit_from(std::span<const Point> starts, const std::vector<ScalingRun>& runs) {
  Point best = starts.front();
  double least = std::numeric_limits<double>::infinity();
  for (const Point& start : starts) {
    double cost = 0;
    const Point found = descend(start, runs, cost);
    if (cost < least) {
      least = cost;
      best = found;
    }
  }
  return best;
}

std::vector<Point> starts() {
  std::vector<Point> all;
  for (const double a : {2.0, 6.0, 12.0}) {
    for (const double b : {2.0, 6.0, 12.0}) {
      for (const double e : {-0.5, 0.5}) {
        for (const double exponent : {0.25, 0.5}) all.push_back({a, b, e, exponent, exponent});
      }
    }
  }
  return all;
}

// Finds the intervals by bootstrap: the 10th and the 90th percentile of 100 fits to resampled runs.
void find_intervals(const Point& best, const std::vector<ScalingRun>& runs, FittedLaw& fitted) {
  constexpr size_t kDraws = 100;
  std::vector<Point> points;
  uint64_t seed = 1;
  for (size_t draw = 0; draw < kDraws; ++draw) {
    std::vector<ScalingRun> drawn;
    for (size_t i = 0; i < runs.size(); ++i) {
      drawn.push_back(runs[mix_bits(seed += kGolden) % runs.size()]);
    }
    double cost = 0;
    points.push_back(descend(best, drawn, cost));
  }
  Point low;
  Point high;
  for (size_t k = 0; k < best.size(); ++k) {
    std::ranges::sort(points, {}, [&](const Point& p) { return p[k]; });
    low[k] = points[kDraws / 10][k];
    high[k] = points[kDraws - 1 - kDraws / 10][k];
  }
  fitted.low = law_at(low);
  fitted.high = law_at(high);
}

}  // namespace

FittedLaw fit_scaling_law(const std::vector<ScalingRun>& runs) {
  std::set<double> sizes;
  std::set<double> tokens;
  for (const ScalingRun& run : runs) {
    sizes.insert(run.parameters);
    tokens.insert(run.tokens);
  }
  constexpr size_t kFewest = 5;
  if (runs.size() < kFewest || sizes.size() < 2 || tokens.size() < 2) {
    throw Error(ErrorCode::invalid_argument,
                cat(runs.size(), " runs of ", sizes.size(), " sizes and ", tokens.size(),
                    " numbers of tokens do not determine the five parameters of the law"),
                {.remedy = "use at least 5 runs with several sizes and numbers of tokens"});
  }
  const std::vector<Point> all = starts();
  const Point best = fit_from(all, runs);
  FittedLaw fitted;
  fitted.law = law_at(best);
  find_intervals(best, runs, fitted);
  for (const ScalingRun& run : runs) {
    fitted.error += std::abs(fitted.law.loss(run.parameters, run.tokens) / run.loss - 1);
  }
  fitted.error /= static_cast<double>(runs.size());
  return fitted;
}

}  // namespace tutti::training::planner
