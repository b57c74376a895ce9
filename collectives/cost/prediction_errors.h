// Errors of predictions that use the parameters of a machine or cluster, and intervals from these
// errors.
#pragma once

#include <array>
#include <cstddef>

#include "base/json.h"

namespace tutti {

struct Interval {
  double low = 0;
  double high = 0;
};

// Returns the 90% interval around a predicted value. `deviation` is the standard deviation of
// log(measured / predicted).
Interval interval_around(double value, double deviation);

class PredictionErrors {
 public:
  // Size classes of a call: below 1 MiB, from 1 MiB to below 256 MiB, and larger.
  static constexpr size_t kSizes = 3;
  static size_t size_class(double bytes);

  // Standard deviation of log(measured / predicted), one value per size class.
  std::array<double, kSizes> deviation = {};

  // Returns the 90% interval around a predicted time of a call of `bytes` bytes, for normally
  // distributed errors.
  Interval around(double time, double bytes) const;
};

// Collects the errors of measured calls.
class ErrorTally {
 public:
  void add(double bytes, double log_error);
  // Returns the errors of the added calls. Three imagined calls with the error `usual` are added to
  // each class, so that a few calls that fit well do not narrow the interval.
  PredictionErrors errors(const PredictionErrors& usual) const;

 private:
  std::array<double, PredictionErrors::kSizes> squares_ = {};
  std::array<double, PredictionErrors::kSizes> count_ = {};
};

Json to_json(const PredictionErrors& errors);
// Reads errors that to_json() wrote. Throws Error(invalid_argument).
PredictionErrors errors_from(const Json& json);

}  // namespace tutti
