// Times steps of a network in every mix of batch-, model- and, for convolutions, domain-parallel
// layers (training/models/mix.h), in turn, and compares them with predicted costs. Also shows how
// much longer the mix with the lowest predicted cost takes than the fastest one.
//
//   tutti run -n 2 mixes [ROUNDS [OPTIONS of tutti train]]
//   tutti run -n 2 mixes 20 --model convnet --filters 16 32 --widths 64 --micro-batch 64 --batch 64
//
// In each round each mix trains some steps, in a random order, after one step that does not count.
// A step's time is that of its slowest rank. Beside the median, prints the slowest step of the
// fastest tenth, because on a host with other load most slower steps measure that load. Images are
// random, 28 x 28, of 10 classes. Without options the network is a perceptron of 5 layers, and the
// batch 256.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
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
#include "training/models/mixed_network.h"
#include "training/models/registry.h"
#include "training/planner/local/mix_search.h"
#include "training/setup/session.h"

namespace tutti::training {
namespace {

constexpr int kStepsOfATurn = 4;  // steps of one mix in a round; the first one is not timed

constexpr uint64_t kSide = 28;
constexpr int kClasses = 10;

class RandomImages : public DataSet {
 public:
  uint64_t size() const override { return 1 << 20; }
  uint64_t validation_size() const override { return 16; }
  void add(uint64_t example, uint64_t, Batch& batch) const override {
    for (uint64_t i = 0; i < kSide * kSide; ++i) {
      batch.features.push_back(scale_symmetric(random_bits(1, example % 64, i), 1.0f));
    }
    batch.targets.push_back(static_cast<int32_t>(example % kClasses));
    ++batch.samples;
  }
  void add_validation(uint64_t example, Batch& batch) const override { add(example, 0, batch); }
  uint64_t fingerprint() const override { return 1; }
};

struct Question {
  int rounds = 20;
  std::vector<std::string> options = {"--model=perceptron", "--widths=1024", "--widths=128",
                                      "--widths=256",       "--widths=512",  "--batch=256",
                                      "--micro-batch=256"};
};

RunOptions run_of(const Question& question, int ranks) {
  std::vector<std::string> words = {"--data=none", "--workers=0", "--validation-samples=1",
                                    cat("--tp=", ranks),
                                    cat("--steps=", question.rounds * kStepsOfATurn)};
  words.insert(words.end(), question.options.begin(), question.options.end());
  RunOptions run = parse_run_options(words);
  for (const auto& [name, size] : {std::pair<const char*, uint64_t>("channels", 1),
                                   {"height", kSide},
                                   {"width", kSide},
                                   {"classes", kClasses}}) {
    run.model[name] = size;
  }
  return run;
}

// Runs one step. Returns the slowest rank's time in seconds.
double time_of_step(Communicator& world, Session& session) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  session.trainer().next();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  world.all_reduce(std::span(&seconds, 1), ReduceOp::max);
  return seconds;
}

// Returns the seconds of all timed steps, indexed by mix.
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
  std::mt19937 chance(1);  // random numbers that are the same on all ranks
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

// Returns by how much a mix's time exceeds that of the fastest mix, in percent.
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
  const std::unique_ptr<Model> whole = make_model(options.model);
  const auto& layers = dynamic_cast<const MixedNetwork&>(*whole).layers();
  planner::MixCosts costs(layers.size());
  if (world.rank() == 0) costs = planner::measured_mix_costs(options, world.size());
  world.barrier();
  const auto convolutions = std::ranges::count_if(layers, &NetworkLayer::is_convolution);
  const std::vector<Mix> mixes = all_mixes(layers.size(), static_cast<size_t>(convolutions));
  const std::vector<std::vector<double>> times = measured(world, options, mixes, question.rounds);
  if (world.rank() == 0) print(mixes, costs, times);
}

}  // namespace
}  // namespace tutti::training

int main(int argc, char** argv) {
  tutti::training::Question question;
  const std::span<char*> words(argv, static_cast<size_t>(argc));
  if (words.size() > 1) question.rounds = static_cast<int>(std::strtol(words[1], nullptr, 10));
  if (words.size() > 2) question.options.assign(words.begin() + 2, words.end());
  if (question.rounds < 1) {
    std::fprintf(stderr, "mixes: %s turns are too few: give a number above 0\n", words[1]);
    return 2;
  }
  try {
    tutti::training::run(question);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mixes: %s\n", error.what());
    return 1;
  }
}
