// Steps of a perceptron in every mix of batch- and model-parallel layers (training/models/mix.h),
// in turn, beside what costs predict; and how much longer the mix that they choose takes than the
// fastest one.
//
//   tutti run -n 2 mixes [ROUNDS [BATCH [WIDTH...]]]
//
// In each round each mix trains some steps, in a random order, after one that does not count. A
// step's time is that of its slowest rank. Beside the median stands the fastest tenth's slowest
// step: on a host that others use, too, most of the rest measures them. Images are random, 28 x 28,
// of 10 classes.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/median.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "training/core/random.h"
#include "training/planner/local/mix_search.h"
#include "training/setup/session.h"

namespace tutti::training {
namespace {

constexpr int kStepsOfATurn = 4;  // the first does not count

class RandomImages : public DataSet {
 public:
  uint64_t size() const override { return 1 << 20; }
  uint64_t validation_size() const override { return 16; }
  void add(uint64_t example, uint64_t, Batch& batch) const override {
    for (uint64_t i = 0; i < 28 * 28; ++i) {
      batch.features.push_back(scale_symmetric(random_bits(1, example % 64, i), 1.0f));
    }
    batch.targets.push_back(static_cast<int32_t>(example % 10));
    ++batch.samples;
  }
  void add_validation(uint64_t example, Batch& batch) const override { add(example, 0, batch); }
  uint64_t fingerprint() const override { return 1; }
};

struct Question {
  int rounds = 20;
  std::string batch = "256";
  std::vector<std::string> widths = {"1024", "128", "256", "512"};
};

RunOptions run_of(const Question& question, int ranks) {
  std::vector<std::string> words = {"--data=none",
                                    "--model=perceptron",
                                    "--workers=0",
                                    "--validation-samples=1",
                                    cat("--tp=", ranks),
                                    "--batch=" + question.batch,
                                    "--micro-batch=" + question.batch,
                                    cat("--steps=", question.rounds * kStepsOfATurn)};
  for (const std::string& width : question.widths) words.push_back("--widths=" + width);
  RunOptions run = parse_run_options(words);
  for (const auto& [name, size] :
       {std::pair("channels", 1), {"height", 28}, {"width", 28}, {"classes", 10}}) {
    run.model[name] = size;
  }
  return run;
}

// Seconds of the slowest rank.
double time_of_step(Communicator& world, Session& session) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  session.trainer().next();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  world.all_reduce(std::span(&seconds, 1), ReduceOp::max);
  return seconds;
}

// Seconds of all steps that count, by mix.
std::vector<std::vector<double>> measured(Communicator& world, const RunOptions& run,
                                          const std::vector<Mix>& mixes, int rounds) {
  const auto data = std::make_shared<LoadedData>();
  data->sets.push_back(std::make_unique<RandomImages>());
  std::vector<std::unique_ptr<Session>> sessions;
  for (const Mix& mix : mixes) {
    sessions.push_back(std::make_unique<Session>(world, planner::with_mix(run, mix), data));
  }
  std::vector<std::vector<double>> times(mixes.size());
  std::vector<size_t> order(mixes.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 chance(1);  // the same on all ranks
  for (int round = 0; round < rounds; ++round) {
    std::ranges::shuffle(order, chance);
    for (const size_t mix : order) {
      for (int step = 0; step < kStepsOfATurn; ++step) {
        const double seconds = time_of_step(world, *sessions[mix]);
        if (step > 0) times[mix].push_back(seconds);
      }
    }
  }
  return times;
}

double tenth(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 10];
}

// Excess of a mix's time over the fastest one's, in percent.
double excess(const std::vector<double>& seconds, size_t mix) {
  return 100 * (seconds[mix] / std::ranges::min(seconds) - 1);
}

void print(const std::vector<Mix>& mixes, const planner::MixCosts& costs,
           const std::vector<std::vector<double>>& times) {
  std::vector<double> medians, tenths;
  for (const std::vector<double>& its : times) {
    medians.push_back(median(its));
    tenths.push_back(tenth(its));
  }
  std::vector<size_t> order(mixes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t mix) { return tenths[mix]; });
  std::printf("mix          predicted ms      median           tenth\n");
  for (const size_t mix : order) {
    std::printf("%-12s %12.3f %10.3f %+6.1f%% %8.3f %+6.1f%%\n", to_text(mixes[mix]).c_str(),
                1e3 * costs.seconds_of(mixes[mix]), 1e3 * medians[mix], excess(medians, mix),
                1e3 * tenths[mix], excess(tenths, mix));
  }
  const Mix chosen = costs.cheapest();
  const auto at = static_cast<size_t>(std::ranges::find(mixes, chosen) - mixes.begin());
  std::printf("chosen by cost: %s; longer than the fastest by %.1f%% (median), %.1f%% (tenth)\n",
              to_text(chosen).c_str(), excess(medians, at), excess(tenths, at));
}

void run(const Question& question) {
  Communicator world = Communicator::init();
  const RunOptions options = run_of(question, world.size());
  const size_t layers = question.widths.size() + 1;
  planner::MixCosts costs(layers);
  if (world.rank() == 0) costs = planner::measured_mix_costs(options, world.size());
  world.barrier();
  const std::vector<Mix> mixes = all_mixes(layers);
  const std::vector<std::vector<double>> times = measured(world, options, mixes, question.rounds);
  if (world.rank() == 0) print(mixes, costs, times);
}

}  // namespace
}  // namespace tutti::training

int main(int argc, char** argv) {
  tutti::training::Question question;
  const std::span<char*> words(argv, static_cast<size_t>(argc));
  if (words.size() > 1) question.rounds = static_cast<int>(std::strtol(words[1], nullptr, 10));
  if (words.size() > 2) question.batch = words[2];
  if (words.size() > 3) question.widths.assign(words.begin() + 3, words.end());
  tutti::training::run(question);
}
