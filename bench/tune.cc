#include "bench/tune.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/median.h"
#include "base/text.h"
#include "bench/measure.h"
#include "collectives/cost/imagined_machine.h"
#include "collectives/program/algorithm.h"

namespace tutti::bench {

namespace {

struct Call {
  Collective collective;
  const char* algorithm;
};

// Calls that together contain every kind of step, in different proportions.
constexpr Call kPairCalls[] = {{Collective::all_reduce, "recursive_doubling"},
                               {Collective::all_reduce, "ring"},
                               {Collective::all_reduce, "ring_bidirectional"},
                               {Collective::all_reduce, "two_shot"},
                               {Collective::all_reduce, "naive"},
                               {Collective::all_reduce, "parameter_server"},
                               {Collective::all_reduce, "double_binary_tree"},
                               {Collective::reduce_scatter, "all_pairs"},
                               {Collective::broadcast, "linear"},
                               {Collective::reduce, "binomial"},
                               {Collective::all_gather, "ring"},
                               {Collective::all_to_all, "linear"}};
constexpr Call kSharedCalls[] = {
    {Collective::all_reduce, "halving_doubling"}, {Collective::all_reduce, "ring"},
    {Collective::all_reduce, "two_shot"},         {Collective::all_gather, "all_pairs"},
    {Collective::all_to_all, "linear"},           {Collective::broadcast, "chain"}};
constexpr Call kCrowdCalls[] = {{Collective::all_reduce, "recursive_doubling"},
                                {Collective::all_reduce, "naive"},
                                {Collective::all_reduce, "ring"},
                                {Collective::all_reduce, "one_shot"},
                                {Collective::all_reduce, "two_shot"},
                                {Collective::all_reduce, "parameter_server"},
                                {Collective::all_reduce, "knomial_4"},
                                {Collective::all_reduce, "halving_doubling"},
                                {Collective::broadcast, "linear"},
                                {Collective::broadcast, "binomial"},
                                {Collective::barrier, "dissemination"}};
constexpr uint64_t kSmall = 8;

Prediction predicted(const Observation& o, const CostModel& model) {
  const Algorithm& algorithm = require_algorithm(o.collective, o.algorithm);
  const bool shm = o.path == PathClass::shm;
  const Machine machine =
      imagined_machine(Hosts::equal(o.ranks, o.ranks / o.hosts), shm || o.hosts > 1,
                       shm ? PathClass::tcp : o.path, model);
  const Shape shape{.ranks = o.ranks, .layout = tutti::Layout::equal(o.ranks, o.ranks / o.hosts)};
  const uint64_t block = has_blocks(o.collective) ? o.bytes / o.ranks : o.bytes;
  return tutti::predict(make_plans(algorithm, shape), block, DType::f32, machine);
}

double error_of(const Observation& observation, const CostModel& model) {
  return std::abs(std::log(predict(observation, model) / observation.seconds));
}

// Searches by coordinate descent: multiplies one number at a time by a factor while the predictions
// improve.
class Search {
 public:
  Search(CostModel& model, std::vector<Observation> observations, std::vector<double*> numbers)
      : model_(model), observations_(std::move(observations)), numbers_(std::move(numbers)) {
    for (const double* number : numbers_) start_.push_back(*number);
  }

  void run() {
    if (observations_.empty()) return;
    constexpr int kMostSweeps = 40;
    double best = badness();
    for (const double factor : {2.0, 1.3, 1.08}) {
      bool moved = true;
      for (int sweep = 0; moved && sweep < kMostSweeps; ++sweep) {
        moved = false;
        for (double* number : numbers_) {
          for (const double by : {factor, 1 / factor}) {
            const double before = *number;
            *number = before * by;
            const double now = badness();
            if (now < best * (1 - 1e-6)) {
              best = now;
              moved = true;
              break;
            }
            *number = before;
          }
        }
      }
    }
  }

 private:
  // Returns the error of the predictions, plus a penalty that keeps numbers which the observations
  // do not determine near their initial values.
  double badness() const {
    constexpr double kPull = 0.02;
    double sum = 0;
    for (const Observation& observation : observations_) sum += error_of(observation, model_);
    sum /= static_cast<double>(observations_.size());
    for (size_t i = 0; i < numbers_.size(); ++i) {
      sum += kPull * std::abs(std::log(*numbers_[i] / start_[i])) /
             static_cast<double>(numbers_.size());
    }
    return sum;
  }

  CostModel& model_;
  std::vector<Observation> observations_;
  std::vector<double*> numbers_;
  std::vector<double> start_;
};

std::vector<Observation> select(std::span<const Observation> all,
                                const std::function<bool(const Observation&)>& wanted) {
  std::vector<Observation> selected;
  std::ranges::copy_if(all, std::back_inserter(selected), wanted);
  return selected;
}

// Sets the time per byte of a network card to the shortest time per byte on the busiest card, over
// all observed calls of at least 1 MiB between hosts.
void fit_wire(LinkCosts& link, const CostModel& model, PathClass path,
              std::span<const Observation> all) {
  constexpr uint64_t kLarge = 1 << 20;
  double least = std::numeric_limits<double>::infinity();
  for (const Observation& o : all) {
    if (o.path != path || o.hosts == 1 || o.bytes < kLarge) continue;
    CostModel second_a_byte = model;
    second_a_byte.own_link(path).wire = 1;
    least = std::min(least, o.seconds / predicted(o, second_a_byte).wire);
  }
  if (std::isfinite(least)) link.wire = least;
}

// Fits the costs that do not depend on the size first, then the costs per byte, size by size.
void fit_link(CostModel& model, PathClass path, std::span<const Observation> all) {
  const auto of_pair = [&](const Observation& o) { return o.path == path && o.ranks == 2; };
  if (std::ranges::none_of(all, of_pair)) return;
  LinkCosts& link = model.own_link(path);
  fit_wire(link, model, path, all);
  Search(model,
         select(all, [&](const Observation& o) { return of_pair(o) && o.bytes <= 2 * kSmall; }),
         {&link.call, &link.send, &link.recv, &link.latency, &link.local})
      .run();
  for (size_t i = 0; i < link.bytes.size(); ++i) {
    ByteCosts& costs = link.bytes[i];
    if (i > 0) costs = link.bytes[i - 1];
    Search(model,
           select(all,
                  [&](const Observation& o) {
                    return of_pair(o) && o.bytes == LinkCosts::kFootprints[i];
                  }),
           {&costs.send, &costs.recv, &costs.recv_reduce, &costs.reduce, &costs.copy})
        .run();
  }
}

}  // namespace

std::vector<Observation> pair_observations(PathClass path) {
  std::vector<Observation> observations;
  const auto add = [&](uint64_t bytes) {
    for (const Call& call : kPairCalls) {
      // Two blocks need two elements.
      const uint64_t least = has_blocks(call.collective) ? 2 * kSmall : kSmall;
      observations.push_back(
          {call.collective, call.algorithm, 2, 1, path, std::max(bytes, least), 0});
    }
  };
  add(kSmall);
  for (const uint64_t bytes : LinkCosts::kFootprints) add(bytes);
  return observations;
}

std::vector<Observation> shared_observations(PathClass path) {
  std::vector<Observation> observations;
  for (const Call& call : kSharedCalls) {
    for (const uint64_t bytes : {64 << 10, 1 << 20, 4 << 20}) {
      observations.push_back(
          {call.collective, call.algorithm, 4, 2, path, static_cast<uint64_t>(bytes), 0});
    }
  }
  return observations;
}

std::vector<Observation> crowd_observations(int ranks) {
  std::vector<Observation> observations;
  for (const Call& call : kCrowdCalls) {
    for (const uint64_t bytes : {kSmall, 64 * kSmall}) {
      observations.push_back({call.collective, call.algorithm, ranks, 1, PathClass::shm, bytes, 0});
    }
  }
  return observations;
}

std::vector<Observation> all_observations(int ranks, PathClass path) {
  constexpr uint64_t kLargest = 64 << 20;
  std::vector<Observation> observations;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!algorithm->supports({.ranks = ranks}).empty()) continue;
    for (uint64_t bytes = kSmall; bytes <= kLargest; bytes *= 8) {
      const uint64_t least = has_blocks(algorithm->collective) ? kSmall * ranks : kSmall;
      if (algorithm->collective == Collective::barrier && bytes > kSmall) break;
      observations.push_back(
          {algorithm->collective, algorithm->name, ranks, 1, path, std::max(bytes, least), 0});
    }
  }
  return observations;
}

void measure(Communicator& comm, std::vector<Observation>& observations,
             std::chrono::nanoseconds within) {
  const Deadline deadline = Deadline::after(within);
  constexpr double kLong = 0.2;  // seconds per call; larger sizes of a slower call are skipped
  std::map<std::pair<Collective, std::string>, uint64_t> most;  // largest size to time, in bytes
  for (Observation& o : observations) {
    uint64_t& limit = most.try_emplace({o.collective, o.algorithm}, UINT64_MAX).first->second;
    if (o.bytes > limit) continue;
    int is_over = deadline.passed() ? 1 : 0;
    comm.broadcast(std::span(&is_over, 1), 0);
    if (is_over != 0) break;
    Case c;
    c.collective = o.collective;
    c.algorithm = o.algorithm;
    c.bytes = o.bytes;
    Measurement measurement(comm, c);
    const auto calls = static_cast<int>(
        std::clamp<uint64_t>((uint64_t{16} << 20) / std::max<uint64_t>(o.bytes, 1), 5, 200));
    o.seconds = median(measurement.run(std::max(2, calls / 10), calls)) * 1e-6;
    if (o.seconds > kLong) limit = o.bytes;
  }
}

void keep_least(std::vector<Observation>& observations, const std::vector<Observation>& more) {
  if (observations.empty()) observations = more;
  for (size_t i = 0; i < std::min(observations.size(), more.size()); ++i) {
    double& seconds = observations[i].seconds;
    if (more[i].seconds == 0) continue;
    seconds = seconds == 0 ? more[i].seconds : std::min(seconds, more[i].seconds);
  }
}

double predict(const Observation& o, const CostModel& model) { return predicted(o, model).seconds; }

CostModel fit(CostModel model, std::span<const Observation> observations) {
  for (const PathClass path : {PathClass::shm, PathClass::tcp, PathClass::ucx, PathClass::ofi}) {
    fit_link(model, path, observations);
  }
  Search(model,
         select(observations, [](const Observation& o) { return o.ranks > 2 && o.hosts == 1; }),
         {&model.switch_time, &model.shm.reader})
      .run();
  return model;
}

PredictionErrors errors_left(std::span<const Observation> observations, const CostModel& model) {
  constexpr PredictionErrors kUsual = {{0.2, 0.2, 0.2}};
  // fraction by which times differ between two tunings of a virtual machine, an hour apart
  constexpr double kDrift = 0.25;
  ErrorTally tally;
  for (const Observation& o : observations) {
    tally.add(static_cast<double>(o.bytes), std::log(o.seconds / predict(o, model)));
  }
  PredictionErrors errors = tally.errors(kUsual);
  for (double& deviation : errors.deviation) deviation = std::hypot(deviation, kDrift);
  return errors;
}

std::string write(std::span<const Observation> observations) {
  std::string text;
  for (const Observation& o : observations) {
    text += cat(name(o.collective), ' ', o.algorithm, ' ', o.ranks, ' ', o.hosts, ' ', name(o.path),
                ' ', o.bytes, ' ', o.seconds, '\n');
  }
  return text;
}

std::vector<Observation> read(const std::string& text) {
  std::vector<Observation> observations;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string collective;
    std::string path;
    Observation o;
    words >> collective >> o.algorithm >> o.ranks >> o.hosts >> path >> o.bytes >> o.seconds;
    const std::optional<Collective> known = parse_collective(collective);
    const std::optional<PathClass> by = parse_path_class(path);
    if (!words || !known || !by) {
      throw Error(ErrorCode::invalid_argument, cat("malformed observation: ", line));
    }
    o.collective = *known;
    o.path = *by;
    observations.push_back(std::move(o));
  }
  return observations;
}

}  // namespace tutti::bench
