#include "bench/gpu_tune.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "bench/measure.h"
#include "collectives/program/algorithm.h"

namespace tutti::bench {

namespace {

constexpr const char* kMark = "gpu";

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double error_of(const GpuCosts& costs, std::span<const GpuObservation> observations) {
  double error = 0;
  for (const GpuObservation& o : observations) {
    const double off = std::log(predict(o, costs) / o.seconds);
    error += off * off;
  }
  return error;
}

void scale(LinkCosts& link, double by, double LinkCosts::*what) { link.*what *= by; }

// Scales a group of related published costs by a factor, which the search varies.
using Change = std::function<void(GpuCosts&, double by)>;

std::vector<Change> changes() {
  const auto both = [](double LinkCosts::*what) {
    return [what](GpuCosts& costs, double by) {
      scale(costs.simple, by, what);
      scale(costs.lines, by, what);
    };
  };
  return {both(&LinkCosts::call), both(&LinkCosts::latency), both(&LinkCosts::wire),
          // Messages through slots need a fence, messages through lines do not.
          [](GpuCosts& costs, double by) {
            const double fence = std::max(0.0, costs.simple.send - costs.lines.send);
            costs.simple.send = costs.lines.send + by * fence;
          },
          [](GpuCosts& costs, double by) {
            for (LinkCosts* const link : {&costs.simple, &costs.lines}) {
              for (ByteCosts& bytes : link->bytes) {
                for (double* const one :
                     {&bytes.send, &bytes.recv, &bytes.recv_reduce, &bytes.reduce, &bytes.copy}) {
                  *one *= by;
                }
              }
            }
          }};
}

}  // namespace

std::vector<GpuObservation> gpu_observations(int ranks) {
  constexpr uint64_t kLargest = 256 << 20;
  std::vector<GpuObservation> observations;
  for (const char* const algorithm : {"one_shot", "two_shot", "ring"}) {
    for (const GpuProtocol protocol : kGpuProtocols) {
      const uint64_t most = protocol == GpuProtocol::lines ? 1 << 20 : kLargest;
      for (uint64_t bytes = 8; bytes <= most; bytes *= 128) {
        observations.push_back({algorithm, protocol, ranks, bytes, 0});
      }
    }
  }
  return observations;
}

void measure(Communicator& comm, std::vector<GpuObservation>& observations) {
  constexpr double kLong = 0.2;  // seconds per call; larger sizes of a slower call are skipped
  const std::string usual = settings().get_string("TUTTI_GPU_PROTOCOL");
  for (const GpuProtocol protocol : kGpuProtocols) {
    settings().set("TUTTI_GPU_PROTOCOL", std::string(tutti::name(protocol)));
    Communicator own = comm.duplicate();  // a duplicate has its own compiled calls
    double last = 0;
    std::string last_algorithm;
    for (GpuObservation& o : observations) {
      if (o.protocol != protocol) continue;
      if (std::exchange(last_algorithm, o.algorithm) != o.algorithm) last = 0;
      if (last > kLong) continue;
      Case c;
      c.algorithm = o.algorithm;
      c.bytes = o.bytes;
      c.on_device = true;
      Measurement measurement(own, c);
      const auto calls = static_cast<int>(
          std::clamp<uint64_t>((uint64_t{64} << 20) / std::max<uint64_t>(o.bytes, 1), 5, 100));
      last = o.seconds = median(measurement.run(std::max(2, calls / 10), calls)) * 1e-6;
    }
  }
  settings().set("TUTTI_GPU_PROTOCOL", usual);
}

double predict(const GpuObservation& o, const GpuCosts& costs) {
  GpuPlanner planner({.ranks = o.ranks}, costs);
  return planner
      .predict_named(require_algorithm(Collective::all_reduce, o.algorithm), o.protocol,
                     {.collective = Collective::all_reduce, .bytes = o.bytes})
      .seconds;
}

// Minimizes the error by coordinate descent: one factor after the other, with decreasing step
// sizes.
GpuCosts fit(GpuCosts costs, std::span<const GpuObservation> observations) {
  double error = error_of(costs, observations);
  for (double turn = 4; turn > 1.02; turn = std::sqrt(turn)) {
    for (bool better = true; better;) {
      better = false;
      for (const Change& change : changes()) {
        for (const double by : {turn, 1 / turn}) {
          GpuCosts tried = costs;
          change(tried, by);
          const double now = error_of(tried, observations);
          if (now > 0.999 * error) continue;
          costs = tried;
          error = now;
          better = true;
        }
      }
    }
  }
  return costs;
}

std::string write(std::span<const GpuObservation> observations) {
  std::string text;
  for (const GpuObservation& o : observations) {
    text += cat(kMark, ' ', o.algorithm, ' ', tutti::name(o.protocol), ' ', o.ranks, ' ', o.bytes,
                ' ', o.seconds, '\n');
  }
  return text;
}

std::vector<GpuObservation> read_gpu_observations(const std::string& text) {
  std::vector<GpuObservation> observations;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark;
    std::string protocol;
    GpuObservation o;
    words >> mark >> o.algorithm >> protocol >> o.ranks >> o.bytes >> o.seconds;
    if (!words || mark != kMark) continue;
    o.protocol =
        protocol == tutti::name(GpuProtocol::lines) ? GpuProtocol::lines : GpuProtocol::simple;
    observations.push_back(std::move(o));
  }
  return observations;
}

}  // namespace tutti::bench
