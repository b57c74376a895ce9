// tutti train: trains a model on many ranks: data-parallel, in pipelines, or both.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/gnuplot.h"
#include "tools/tutti/train_options.h"
#include "tools/tutti/train_plot.h"
#include "tools/tutti/train_report.h"
#include "tools/tutti/train_setup.h"
#include "training/kernels/peak.h"
#include "training/parallel/rank_statistics.h"

namespace tutti::tool {
namespace {

using training::StepReport;
using training::TrainResult;

// Passed from the process that launches to its ranks.
constexpr const char* kOnTerminal = "--on-terminal";

int allowed_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

bool is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

void write_line(std::ofstream& file, const std::string& path,
                const nlohmann::ordered_json& object) {
  if (!file.is_open()) return;
  append(file, path, object.dump() + '\n', "--json");  // a run that dies leaves what it did
}

void print_result(const LoadedData& data, const TrainResult& result, double units_per_sample,
                  const char* unit, int ranks) {
  const training::Evaluation& validation = result.validation;
  std::printf("validation loss  %.4f nats, %.4f bits (%lld held-out %s, %.2f%% right)\n",
              validation.loss, validation.loss / std::numbers::ln2,
              static_cast<long long>(validation.targets), unit, 100 * validation.correct);
  if (data.bigram_entropy > 0) {
    const double below = 100.0 * (1.0 - validation.loss / data.bigram_entropy);
    std::printf("byte bigrams     %.4f nats over the text's %llu bytes; the model is %.1f%% %s\n",
                data.bigram_entropy, static_cast<unsigned long long>(data.text_bytes),
                std::abs(below), below >= 0 ? "below" : "above");
  }
  std::printf("speed            %.0f %s/s on %d rank%s, %.1f%% of the time waiting for others\n",
              result.samples_per_second * units_per_sample, unit, ranks, ranks == 1 ? "" : "s",
              100.0 * result.waiting_share);
  print_memory(result.memory);
}

nlohmann::ordered_json summary(const LoadedData& data, const TrainResult& result,
                               double units_per_sample, int ranks) {
  const training::Evaluation& validation = result.validation;
  return {{"validation_loss", validation.loss},
          {"validation_bits_per_byte", validation.loss / std::numbers::ln2},
          {"validation_samples", validation.targets},
          {"validation_accuracy", validation.correct},
          {"bigram_entropy", data.bigram_entropy},
          {"samples_per_s", result.samples_per_second},
          {"tokens_per_s", result.samples_per_second * units_per_sample},
          {"communication_share", result.waiting_share},
          {"ranks", ranks},
          {"resumed_at", result.resumed_at},
          {"memory", json_of(result.memory)}};
}

// What one rank does.
void train_as_rank(TrainCommand& options, const LoadedData& data) {
  // A stage's messages must travel while it computes the next micro-batch.
  if (options.mesh.pipeline > 1 && settings().value("TUTTI_PROGRESS_THREAD").origin == "default") {
    settings().set("TUTTI_PROGRESS_THREAD", "1");
  }
  Communicator world = Communicator::init();
  if (options.ranks != 0 && options.ranks != world.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("--ranks ", options.ranks, " was asked for, but the launcher started ",
                    world.size(), world.size() == 1 ? " rank" : " ranks"),
                {.where = world.describe(world.rank()),
                 .remedy = "leave --ranks out, or start as many ranks"});
  }
  settle(options, world.size(), data.examples());
  training::Mesh mesh(world, options.mesh);
  training::RankStatistics statistics(mesh.along(training::Axis::data));
  const std::unique_ptr<training::Model> model = make_model(options, &statistics);
  if (world.rank() != 0) {
    training::train(mesh, *model, data.views(), options.training, [](const StepReport&) {});
    return;
  }
  std::ofstream json = open_for_writing(options.json, "--json");
  const Picture picture(options.plot, "--plot");
  LossCurves curves;
  const auto units = static_cast<double>(model->targets_per_sample());
  const char* unit = units > 1 ? "tokens" : "samples";
  Progress progress(unit, units, training::measured_peak(options.training.replica.storage.dtype),
                    world.size(), options.on_terminal || is_terminal());
  const TrainResult result =
      training::train(mesh, *model, data.views(), options.training, [&](const StepReport& report) {
        write_line(json, options.json, json_of(report, units));
        progress.show(report);
        curves.training.emplace_back(report.step, report.result.loss);
        if (report.validation) curves.validation.emplace_back(report.step, report.validation->loss);
      });
  if (picture.wanted()) plot_losses(picture, model->description(), {&curves, 1});
  print_result(data, result, units, unit, world.size());
  const training::PipelineOptions& pipeline = options.training.replica.pipeline;
  print_pipeline(result.pipeline, pipeline, *model);
  nlohmann::ordered_json last = summary(data, result, units, world.size());
  if (!result.pipeline.cut.empty()) last["pipeline"] = json_of(result.pipeline, pipeline);
  write_line(json, options.json, last);
}

// A rank for each core, but none without a micro-batch in every step.
int useful_ranks(const TrainCommand& options, const LoadedData& data) {
  const int cores = allowed_cores();
  TrainCommand tried = options;
  settle(tried, cores, data.examples());
  const uint64_t micro_batch = tried.training.micro_batch;
  const uint64_t micro_batches = (tried.training.batch + micro_batch - 1) / micro_batch;
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(cores), micro_batches));
}

// Files that cannot be written are found before the work is done.
void check_outputs(const TrainCommand& options) {
  open_for_writing(options.json, "--json");
  open_for_writing(options.training.trace, "--trace");
  Picture(options.plot, "--plot");
  if (options.training.checkpoint.empty()) return;
  std::error_code code;
  std::filesystem::create_directories(options.training.checkpoint, code);
  if (!code) return;
  throw system_error(cat("cannot make the directory ", options.training.checkpoint), code.value(),
                     {.where = "--checkpoint", .remedy = "name a directory you may write to"});
}

int train(TrainCommand options) {
  // What is wrong for every rank is said once, before there are any.
  const LoadedData data = load_data(options);
  const int wanted = wanted_ranks(options);
  const int ranks = wanted != 0 ? wanted : useful_ranks(options, data);
  make_model(options);
  if (!is_launched()) {
    TrainCommand tried = options;
    settle(tried, ranks, data.examples());
    check_outputs(options);
    if (ranks > 1) {
      return launch_self(ranks, is_terminal() ? std::vector<std::string>{kOnTerminal}
                                              : std::vector<std::string>{});
    }
  }
  train_as_rank(options, data);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  const auto options = std::make_shared<TrainCommand>();
  CLI::App* command =
      app.add_subcommand("train", "Train a language model or an image classifier on many ranks");
  add_train_options(*command, *options);
  command->add_flag(kOnTerminal, options->on_terminal)->group("");  // not in --help
  command->footer(
      "Examples:\n"
      "  tutti train --data TEXT --ranks 2 --json losses.jsonl\n"
      "  tutti train --data TEXT --model gpt2 --layers 6 --heads 6 --width 384 --context 256 \\\n"
      "    --ranks 2 --zero 2 --precision bf16 --checkpoint DIR\n"
      "  tutti train --data TEXT --model gpt2 --dp 2 --pp 2 --schedule zb-h1 --micro-batches 8\n"
      "The losses do not depend on --ranks, but for rounding; with TUTTI_DETERMINISTIC=1 not on\n"
      "--zero, --bucket-mb or --recompute either, nor on --pp with any synchronous schedule but\n"
      "Chimera, not by a bit.");
  command->callback([options, &chosen] { chosen = [options] { return train(*options); }; });
}

}  // namespace tutti::tool
