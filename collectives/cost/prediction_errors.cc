#include "collectives/cost/prediction_errors.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr std::array kNames = {"below_1MiB", "below_256MiB", "above"};

}  // namespace

size_t PredictionErrors::size_class(double bytes) {
  constexpr double MiB = 1 << 20;
  return bytes < MiB ? 0 : bytes < 256 * MiB ? 1 : 2;
}

Interval interval_around(double value, double deviation) {
  constexpr double kNinety = 1.645;  // number of standard deviations to each side
  const double factor = std::exp(kNinety * deviation);
  return {.low = value / factor, .high = value * factor};
}

Interval PredictionErrors::around(double time, double bytes) const {
  return interval_around(time, deviation[size_class(bytes)]);
}

void ErrorTally::add(double bytes, double log_error) {
  const size_t size = PredictionErrors::size_class(bytes);
  squares_[size] += log_error * log_error;
  ++count_[size];
}

PredictionErrors ErrorTally::errors(const PredictionErrors& usual) const {
  constexpr double kAsMany = 3;
  PredictionErrors errors;
  for (size_t i = 0; i < errors.deviation.size(); ++i) {
    const double square = usual.deviation[i] * usual.deviation[i];
    errors.deviation[i] = std::sqrt((kAsMany * square + squares_[i]) / (kAsMany + count_[i]));
  }
  return errors;
}

Json to_json(const PredictionErrors& errors) {
  Json json = Json::object();
  for (size_t i = 0; i < kNames.size(); ++i) json[kNames[i]] = errors.deviation[i];
  return json;
}

PredictionErrors errors_from(const Json& json) {
  PredictionErrors errors;
  for (size_t i = 0; i < kNames.size(); ++i) {
    double& deviation = errors.deviation[i];
    deviation = json.at(kNames[i]).get<double>();
    if (!std::isfinite(deviation) || deviation < 0) {
      throw Error(ErrorCode::invalid_argument, cat("\"", kNames[i], "\" is ", deviation));
    }
  }
  return errors;
}

}  // namespace tutti
