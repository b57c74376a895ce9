#include "training/pipeline/closed_form.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::training::pipeline {
namespace {

bool equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(a, b); }

bool uniform(const std::vector<double>& times) {
  return !times.empty() &&
         std::ranges::all_of(times, [&](double time) { return equal(time, times.front()); });
}

bool free_of_messages(const Costs& costs) {
  return std::ranges::all_of(costs.message, [](double time) { return time == 0; });
}

constexpr const char* kEven = "every chunk takes the same time, messages take none";
constexpr const char* kEvenGroups =
    "every chunk takes the same time, messages take none; m is a multiple of p, or v = 1";
constexpr const char* kH1 = "F = I = W in every chunk, messages take none; m >= p";
constexpr const char* kH2 = "F = I = W in every chunk, messages take none; m >= 2p - 1";
constexpr const char* kHalves =
    "F = I + W in every chunk, messages take none; m is a multiple of p";

}  // namespace

std::optional<ClosedForm> closed_form(const ScheduleKind& kind, const Shape& shape,
                                      const Costs& costs) {
  const double p = shape.ranks;
  const double m = shape.micro_batches;
  const double v = shape.virtual_stages;
  const bool even = uniform(costs.forward) && uniform(costs.backward_input) &&
                    uniform(costs.backward_weight) && free_of_messages(costs) &&
                    costs.forward[0] + costs.backward_input[0] + costs.backward_weight[0] > 0;
  const double f = even ? costs.forward[0] : 0;
  const double i = even ? costs.backward_input[0] : 0;
  const double w = even ? costs.backward_weight[0] : 0;
  const bool thirds = even && equal(f, i) && equal(i, w);
  const bool full = shape.micro_batches % shape.ranks == 0;
  if (kind.name == "gpipe" || kind.name == "1f1b") {
    return ClosedForm{"(p-1)/(m+p-1)", (p - 1) / (m + p - 1), false, kEven, even};
  }
  if (kind.name == "interleaved") {
    return ClosedForm{"(p-1)/(vm+p-1)", (p - 1) / (v * m + p - 1), false, kEvenGroups,
                      even && (full || v == 1)};
  }
  if (kind.name == "zb-h1") {  // a third of 1F1B's idle time
    return ClosedForm{"(p-1)/(3m+p-1)", (p - 1) / (3 * m + p - 1), false, kH1, thirds && m >= p};
  }
  if (kind.name == "zb-h2") return ClosedForm{"0", 0, true, kH2, thirds && m >= 2 * p - 1};
  if (kind.name == "chimera") {
    return ClosedForm{"(p-2)/(2m+p-2)", (p - 2) / (2 * m + p - 2), false, kHalves,
                      even && equal(f, i + w) && full};
  }
  return std::nullopt;
}

}  // namespace tutti::training::pipeline
