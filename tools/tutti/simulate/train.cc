// tutti simulate train: simulates a training step of tensor x data x pipeline ranks on a network.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/simulate/setup.h"
#include "topology/layout.h"
#include "training/pipeline/check.h"
#include "training/pipeline/schedules.h"
#include "training/simulate/step.h"

namespace tutti::tool {

namespace {

using training::SimulatedStep;
using training::StepSchedule;
using training::StepWork;
using training::pipeline::Plan;
using training::pipeline::ScheduleKind;

// Maximum number of simulated steps over all ranks: with a single algorithm, and with each
// algorithm that `auto` or `all` tries.
constexpr int64_t kMostTrainSteps = 40'000'000;
constexpr int64_t kMostTrainStepsTried = 10'000'000;
constexpr size_t kMostTried = 4;
constexpr int64_t kMostTrainWorkTried = 200'000'000;
constexpr double kMostMicroBatches = 10'000'000;  // maximum number over all stages and chunks
constexpr size_t kMostStagesShown = 32;

struct StepRow {
  const Algorithm* algorithm = nullptr;
  SimulatedStep step;
  int32_t alike = 1;

  double time_us() const { return step.network.time_us; }
};

// Adds forward times to backward times; each list has one time for all chunks, or one per chunk.
void add_forwards(std::vector<double>& backward, const std::vector<double>& forward) {
  if (backward.size() == 1) backward.resize(forward.size(), backward[0]);
  for (size_t chunk = 0; chunk < backward.size(); ++chunk) {
    backward[chunk] += forward[forward.size() == 1 ? 0 : std::min(chunk, forward.size() - 1)];
  }
}

// Returns the costs. The weight part is subtracted from the full backward time, which may be given
// per chunk.
training::pipeline::Costs costs_in(const SimulateOptions& o) {
  training::pipeline::Costs costs{.forward = o.forward_us};
  std::vector<double> weight = o.backward_weight_us;
  if (weight.empty()) {
    for (const double us : o.backward_us) weight.push_back(us / 2);
  }
  std::vector<double> whole = o.backward_us;
  if (whole.size() == 1) whole.resize(weight.size(), whole[0]);
  if (weight.size() == 1) weight.resize(whole.size(), weight[0]);
  if (whole.size() != weight.size()) {
    refuse(
        cat(whole.size(), " times in --backward-us, ", weight.size(), " in --backward-weight-us"),
        "give one time for all chunks, or one per chunk");
  }
  costs.backward_input.clear();
  for (size_t chunk = 0; chunk < whole.size(); ++chunk) {
    if (weight[chunk] > whole[chunk]) {
      refuse(cat("--backward-weight-us ", weight[chunk], " exceeds --backward-us ", whole[chunk]),
             "--backward-us is the full backward, which includes --backward-weight-us");
    }
    costs.backward_input.push_back(whole[chunk] - weight[chunk]);
  }
  costs.backward_weight = weight;
  if (o.recomputes) add_forwards(costs.backward_input, o.forward_us);
  return costs;
}

class TrainPlay {
 public:
  explicit TrainPlay(const SimulateOptions& options) : o_(options), on_(o_) {
    const int64_t each = int64_t{o_.stages} * o_.tensor;
    if (each > on_.ranks || on_.ranks % each != 0) {
      refuse(o_.tensor == 1 ? cat("--pp ", o_.stages, " does not divide ", on_.ranks, " ranks")
                            : cat("--pp ", o_.stages, " x --tp ", o_.tensor, " does not divide ",
                                  on_.ranks, " ranks"),
             "make --ranks a multiple, so that each stage has equally many data-parallel ranks");
    }
    data_ = static_cast<int>(on_.ranks / each);
    make_plan();
    places_ = on_.network->places(on_.ranks);
    group_ = training::ranks_that_sum(plan_, data_, o_.tensor).front();
    work_.costs = costs_in(o_);
    work_.activation_bytes = bytes_in(
        "--activation-bytes", o_.activation_bytes, each > 1,
        o_.stages > 1 ? "stages send activations" : "tensor-parallel ranks reduce activations");
    work_.gradient_bytes = bytes_in("--gradient-bytes", o_.gradient_bytes, group_.size() > 1,
                                    "data-parallel ranks reduce gradients");
    work_.bucket_bytes = static_cast<double>(parse_bytes(o_.bucket_bytes));
    if (o_.tensor > 1) choose_tensor_algorithms();
    work_.optimizer_us = o_.optimizer_us;
    work_.zero.stage = sums() ? o_.zero : 0;
    if (work_.zero.stage > 0) {
      work_.zero.all_gather =
          most_promising(Collective::all_gather, shape_of(group_), work_.gradient_bytes);
    }
  }

  int run() {
    rows_ = play_each<StepRow>(o_, algorithms(), [&](const Algorithm& algorithm, double give_up) {
      return play(algorithm, give_up);
    });
    end_progress();
    print();
    write_json();
    return 0;
  }

 private:
  void make_plan() {
    const ScheduleKind& kind = training::pipeline::schedule_named(o_.schedule);
    if (o_.virtual_stages.value_or(1) > 1 && !kind.has_virtual_stages) {
      refuse(cat(kind.name, " has one chunk per rank, not ", *o_.virtual_stages),
             "remove --virtual, or use interleaved");
    }
    const int chunks = o_.virtual_stages.value_or(kind.has_virtual_stages ? 2 : 1);
    if (1.0 * o_.stages * o_.micro_batches * chunks > kMostMicroBatches) {
      refuse(cat(o_.stages, " stages and ", o_.micro_batches, " micro-batches exceed the limit"),
             cat("use at most ", kMostMicroBatches, " forwards"));
    }
    plan_ = training::pipeline::make_plan(make_schedule(
        kind, {.ranks = o_.stages, .micro_batches = o_.micro_batches, .virtual_stages = chunks}));
    check(plan_);
  }

  static double bytes_in(const char* option, const std::string& text, bool needed,
                         const char* why) {
    if (!text.empty()) return static_cast<double>(parse_bytes(text));
    if (needed) throw UsageError(cat("train requires ", option, ": ", why));
    return 0;
  }

  bool sums() const { return group_.size() > 1 && work_.gradient_bytes > 0; }

  Shape shape_of(const std::vector<int32_t>& ranks) const {
    std::vector<Place> places;
    for (const int32_t rank : ranks) places.push_back(places_[static_cast<size_t>(rank)]);
    return {.ranks = static_cast<int32_t>(ranks.size()), .layout = Layout::of(places)};
  }

  // Returns the algorithms to simulate. They are chosen for the ranks of the first stage, which
  // represent all stages.
  std::vector<const Algorithm*> algorithms() {
    if (!sums()) return {algorithms_for(Collective::all_reduce).front()};
    const Collective sum =
        work_.zero.stage > 0 ? Collective::reduce_scatter : Collective::all_reduce;
    return algorithms_to_play(o_, sum, shape_of(group_),
                              std::min(work_.bucket_bytes, work_.gradient_bytes), *on_.network,
                              kMostTried);
  }

  const Algorithm* most_promising(Collective collective, const Shape& shape, double bytes) const {
    SimulateOptions any = o_;
    any.algorithm = "auto";
    return algorithms_to_play(any, collective, shape, bytes, *on_.network, 1).front();
  }

  // Chooses the most promising algorithms for each collective. --algorithm applies only to the sums
  // of gradients.
  void choose_tensor_algorithms() {
    std::vector<int32_t> first(static_cast<size_t>(o_.tensor));
    std::iota(first.begin(), first.end(), 0);
    const auto choose = [&](Collective collective) {
      return most_promising(collective, shape_of(first), work_.activation_bytes);
    };
    work_.tensor = {.ranks = o_.tensor,
                    .blocks = o_.blocks,
                    .shares_rows = o_.shares_rows,
                    .all_reduce = o_.shares_rows ? nullptr : choose(Collective::all_reduce),
                    .reduce_scatter = o_.shares_rows ? choose(Collective::reduce_scatter) : nullptr,
                    .all_gather = choose(Collective::all_gather)};
  }

  StepRow play(const Algorithm& algorithm, double give_up) {
    show_progress(cat("making ", algorithm.name), -1);
    const bool is_tried = o_.tries_several();
    const StepSchedule schedule = make_step_schedule(
        plan_, work_, places_, algorithm,
        {.most_steps = is_tried ? kMostTrainStepsTried : kMostTrainSteps, .alike = on_.alike});
    SimulationOptions options = on_.simulation;
    options.give_up_us = give_up;
    if (o_.algorithm == "auto") options.most_work = kMostTrainWorkTried;
    options.progress = [&](double part) { show_progress(cat("playing ", algorithm.name), part); };
    return {&algorithm, simulate_step(schedule, *on_.network, options), schedule.schedule.alike};
  }

  std::string name_of(const StepRow& row) const {
    if (!sums()) return "-";
    const Algorithm* const gather = work_.zero.all_gather;
    return gather == nullptr ? row.algorithm->name : cat(row.algorithm->name, " + ", gather->name);
  }

  void print() const {
    const std::string tensor = o_.tensor == 1 ? "" : cat(o_.tensor, " tensor x ");
    std::printf("train on %s: %s%d data x %d pipeline ranks, %s, %d micro-batch%s, %zu links\n",
                o_.topology.c_str(), tensor.c_str(), data_, o_.stages, plan_.schedule.name.c_str(),
                o_.micro_batches, o_.micro_batches == 1 ? "" : "es",
                on_.network->graph().links().size());
    std::printf("%-28s %14s %14s %14s %14s %10s %12s  %s\n", "sums by", "time us", "compute us",
                "bubble us", "exposed us", "efficiency", "messages", "busiest link");
    for (const StepRow& row : rows_) {
      const SimulatedStep& step = row.step;
      std::printf("%-28s %14.2f %14.2f %14.2f %14.2f %9.2f%% %12lld  %s\n", name_of(row).c_str(),
                  row.time_us(), step.compute_us, step.bubble_us, step.exposed_us,
                  100 * step.efficiency, static_cast<long long>(step.network.messages),
                  busiest_link(step.network, *on_.network).c_str());
    }
    const std::vector<double>& idle = rows_[0].step.idle_us;
    if (idle.size() > 1 && idle.size() <= kMostStagesShown) {
      std::printf("idle us, by stage:");
      for (const double us : idle) std::printf(" %.2f", us);
      std::printf("\n");
    }
    std::printf(
        "compute: time of the busiest stage; bubble: its waits for other stages; exposed: the time "
        "that\n"
        "messages add.\n");
    if (rows_[0].alike == 1) return;
    std::printf(
        "The ranks of a host behave alike and were simulated as one (use --every-rank to simulate "
        "each).\n");
  }

  Json to_json(const StepRow& row) const {
    const SimulatedStep& step = row.step;
    Json json = {{"algorithm", name_of(row)},
                 {"time_us", row.time_us()},
                 {"compute_us", step.compute_us},
                 {"bubble_us", step.bubble_us},
                 {"exposed_us", step.exposed_us},
                 {"efficiency", step.efficiency},
                 {"messages", step.network.messages},
                 {"bytes_sent", step.network.bytes_sent},
                 {"first_rank_us", step.network.first_us},
                 {"last_rank", step.network.last_rank},
                 {"ranks_as_one", row.alike}};
    json["idle_us"] = Json::array();
    for (const double us : step.idle_us) json["idle_us"].push_back(us);
    add_busiest_link(step.network, *on_.network, json);
    return json;
  }

  // The fastest result is also at the top level.
  void write_json() const {
    const Json document = {{"topology", o_.topology},
                           {"ranks", on_.ranks},
                           {"data_ranks", data_},
                           {"tensor_ranks", o_.tensor},
                           {"stages", o_.stages},
                           {"zero", work_.zero.stage},
                           {"schedule", plan_.schedule.name},
                           {"micro_batches", o_.micro_batches}};
    Json results = Json::array();
    for (const StepRow& row : rows_) results.push_back(to_json(row));
    write_results(o_.json, document, results);
  }

  const SimulateOptions& o_;
  SimulatedNetwork on_;
  int data_ = 1;
  Plan plan_;
  std::vector<Place> places_;
  std::vector<int32_t> group_;  // ranks of the first stage that reduce gradients
  StepWork work_;
  std::vector<StepRow> rows_;
};

}  // namespace

int simulate_train(const SimulateOptions& options) { return TrainPlay(options).run(); }

}  // namespace tutti::tool
