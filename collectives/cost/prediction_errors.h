// How far off predictions are: what a file of parameters (a machine's, a cluster's) says of itself,
// and the interval that follows from it.
#pragma once

#include <array>
#include <cstddef>

#include "base/json.h"

namespace tutti {

struct Interval {
  double low = 0;
  double high = 0;
};

class PredictionErrors {
 public:
  // The size of a call: below 1 MiB, below 256 MiB, above.
  static constexpr size_t kSizes = 3;
  static size_t size_class(double bytes);

  // By size, the standard deviation of log(measured / predicted).
  std::array<double, kSizes> deviation = {};

  // Holds nine measurements of ten, if errors are normally distributed.
  Interval around(double time, double bytes) const;
};

// Collects the errors of measured calls.
class ErrorTally {
 public:
  void add(double bytes, double log_error);
  // Of what was added, and of a few more calls by which each size is off as `usual` says: a handful
  // of calls that fit well proves little.
  PredictionErrors errors(const PredictionErrors& usual) const;

 private:
  std::array<double, PredictionErrors::kSizes> squares_ = {};
  std::array<double, PredictionErrors::kSizes> count_ = {};
};

Json to_json(const PredictionErrors& errors);
// Throws Error(invalid_argument).
PredictionErrors errors_from(const Json& json);

}  // namespace tutti
