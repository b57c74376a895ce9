#include "tools/tutti/pipeline/measure.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <thread>
#include <utility>

#include "base/median.h"
#include "base/text.h"
#include "training/pipeline/executor.h"

namespace tutti::tool {

namespace {

using namespace training::pipeline;
using training::ConstTensor;
using training::Tensor;
using training::tensor_at;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Tolerance as a fraction of the simulated bubble or, if that is 0, of the total time.
constexpr double kTolerance = 0.05;
// Number of steps before successive steps reach a steady state.
constexpr int kWarmUp = 2;

// A stage that sleeps instead of computing. Each entry sleeps its full time from its start.
class SleepingStage : public StageWork {
 public:
  SleepingStage(const Costs& costs, double unit) : costs_(costs), unit_(unit) {}

  Tensor shape_after(int, int) const override {
    return tensor_at(static_cast<float*>(nullptr), DType::f32, 1, 1);
  }
  Tensor forward(const Action& action, ConstTensor) override {
    sleep(time(costs_.forward, action));
    return tensor_at(&result_, DType::f32, 1, 1);
  }
  Tensor backward(const Action& action, ConstTensor) override {
    double units = time(costs_.backward_input, action);
    if (action.entry.kind == Kind::backward) units += time(costs_.backward_weight, action);
    sleep(units);
    return tensor_at(&result_, DType::f32, 1, 1);
  }
  void backward_weight(const Action& action) override {
    sleep(time(costs_.backward_weight, action));
  }

  // Returns the time spent in entries since the last call.
  double take_busy() { return std::exchange(busy_, 0); }

 private:
  static double time(const std::vector<double>& costs, const Action& action) {
    return costs.size() == 1 ? costs[0] : costs.at(static_cast<size_t>(action.entry.chunk));
  }
  void sleep(double units) {
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_until(
        start + std::chrono::duration_cast<Clock::duration>(Seconds(units * unit_)));
    busy_ += Seconds(Clock::now() - start).count();
  }

  const Costs& costs_;
  double unit_;
  double busy_ = 0;
  float result_ = 0;
};

struct Step {
  double start = 0;
  double end = 0;
  double busy = 0;
};
constexpr size_t kNumbers = sizeof(Step) / sizeof(double);

double now() { return Seconds(Clock::now().time_since_epoch()).count(); }

// Returns the steps of all ranks, indexed by rank and then by step.
std::vector<std::vector<Step>> run_steps(Communicator& stages, Executor& executor,
                                         const PipelineReport& report, SleepingStage& stage,
                                         int steps, bool barriers) {
  std::vector<Step> own;
  stages.barrier();
  stage.take_busy();
  for (int i = 0; i < steps; ++i) {
    if (barriers) stages.barrier();
    const double start = now();
    executor.run(report.plan, stage);
    own.push_back({start, now(), stage.take_busy()});
  }
  const auto count = static_cast<size_t>(steps);
  const auto ranks = static_cast<size_t>(stages.size());
  std::vector<Step> all(count * ranks);
  stages.all_gather({own.data(), count * kNumbers, DType::f64},
                    {all.data(), all.size() * kNumbers, DType::f64});
  std::vector<std::vector<Step>> by_rank(ranks);
  for (size_t i = 0; i < all.size(); ++i) by_rank[i / count].push_back(all[i]);
  return by_rank;
}

// Measures single steps, from a barrier to the end of the slowest rank.
void add_single_steps(const std::vector<std::vector<Step>>& ranks, MeasuredPipeline& measured) {
  std::vector<double> makespans;
  std::vector<double> bubbles;
  for (size_t i = 0; i < ranks[0].size(); ++i) {
    Step whole = ranks[0][i];
    whole.busy = 0;
    for (const std::vector<Step>& steps : ranks) {
      whole.start = std::min(whole.start, steps[i].start);
      whole.end = std::max(whole.end, steps[i].end);
      whole.busy += steps[i].busy;
    }
    makespans.push_back(whole.end - whole.start);
    bubbles.push_back(1 - whole.busy / (makespans.back() * static_cast<double>(ranks.size())));
  }
  measured.makespan = median(makespans);
  measured.bubble = median(bubbles);
}

// Measures successive steps: the time from the end of one step to the end of the next, on each
// rank. The first steps are not measured.
void add_successive_steps(const std::vector<std::vector<Step>>& ranks, MeasuredPipeline& measured) {
  std::vector<double> periods;
  std::vector<double> bubbles;
  for (size_t i = kWarmUp; i < ranks[0].size(); ++i) {
    double total = 0;
    double busy = 0;
    for (const std::vector<Step>& steps : ranks) {
      total += steps[i].end - steps[i - 1].end;
      busy += steps[i].busy;
    }
    periods.push_back(total / static_cast<double>(ranks.size()));
    bubbles.push_back(1 - busy / total);
  }
  measured.period = median(periods);
  measured.steady_bubble = median(bubbles);
}

struct Difference {
  double value = 0;
  bool within = false;
};

// Returns the difference relative to the simulated value.
Difference compare(double measured, double simulated) {
  const double difference = measured - simulated;
  if (simulated < 1e-9) return {difference, std::abs(difference) <= kTolerance};
  return {difference / simulated, std::abs(difference / simulated) <= kTolerance};
}

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

std::string line(const char* what, const char* time, double measured, double simulated,
                 double measured_bubble, double bubble) {
  return format(
      "%-20s %s %.4g instead of %.4g (%+.2f%%), bubble %.2f%% instead of %.2f%% (%+.2f%%%s)\n",
      what, time, measured, simulated, 100 * (measured / simulated - 1), 100 * measured_bubble,
      100 * bubble, 100 * compare(measured_bubble, bubble).value,
      bubble < 1e-9 ? " of the total" : "");
}

}  // namespace

MeasuredPipeline measure(Communicator& stages, const PipelineReport& report, const Costs& costs,
                         const PipelineMeasuring& measuring) {
  ::prctl(PR_SET_TIMERSLACK, 1);  // a shorter timer slack than the default of 50 us
  const double unit = measuring.sleep_ms / 1000;
  SleepingStage stage(costs, unit);
  Communicator alone = stages.split(stages.rank());
  Executor executor(Boundary(stages, alone));
  MeasuredPipeline measured;
  add_single_steps(run_steps(stages, executor, report, stage, measuring.steps, true), measured);
  add_successive_steps(run_steps(stages, executor, report, stage, measuring.steps + kWarmUp, false),
                       measured);
  measured.makespan /= unit;
  measured.period /= unit;
  return measured;
}

std::string text_of(const PipelineReport& report, const MeasuredPipeline& measured) {
  const Timeline& timeline = report.timeline;
  return line("measured: one step", "makespan", measured.makespan, timeline.makespan,
              measured.bubble, timeline.bubble) +
         line("          back to back", "period", measured.period, timeline.period,
              measured.steady_bubble, timeline.steady_bubble);
}

Json json_of(const PipelineReport& report, const MeasuredPipeline& measured) {
  const Timeline& timeline = report.timeline;
  return {
      {"makespan", measured.makespan},
      {"bubble", measured.bubble},
      {"period", measured.period},
      {"steady_bubble", measured.steady_bubble},
      {"bubble_difference", compare(measured.bubble, timeline.bubble).value},
      {"steady_bubble_difference", compare(measured.steady_bubble, timeline.steady_bubble).value}};
}

bool measure_all(Communicator& world, const std::vector<PipelineReport>& reports,
                 const Costs& costs, const PipelineMeasuring& measuring) {
  const bool talks = world.rank() == 0;
  if (talks) {
    std::printf(
        "                           one step: bubble            back to back: bubble\n"
        "schedule         p   m   simulated  measured         simulated  measured\n");
  }
  size_t met = 0;
  for (const PipelineReport& report : reports) {
    const Schedule& schedule = report.plan.schedule;
    // Runs as many pipelines at once as the ranks allow.
    Communicator stages = world.split(world.rank() / schedule.ranks);
    const MeasuredPipeline measured = measure(stages, report, costs, measuring);
    const Difference once = compare(measured.bubble, report.timeline.bubble);
    const Difference steady = compare(measured.steady_bubble, report.timeline.steady_bubble);
    met += once.within && steady.within ? 1 : 0;
    if (!talks) continue;
    std::printf(
        "%-15s %2d  %2d     %6.2f%%   %6.2f%% %+6.2f%%     %6.2f%%   %6.2f%% %+6.2f%%  %s\n",
        schedule.name.c_str(), schedule.ranks, schedule.micro_batches, 100 * report.timeline.bubble,
        100 * measured.bubble, 100 * once.value, 100 * report.timeline.steady_bubble,
        100 * measured.steady_bubble, 100 * steady.value,
        once.within && steady.within ? "" : "NOT MET");
    std::fflush(stdout);
  }
  if (talks) {
    std::printf("%zu of %zu within %g%% of the simulated bubble (of the total, where that is 0)\n",
                met, reports.size(), 100 * kTolerance);
  }
  return !talks || met == reports.size();
}

}  // namespace tutti::tool
