// tutti train: trains a model on many ranks: data-parallel, in pipelines, or both.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/gnuplot.h"
#include "tools/tutti/stop_signals.h"
#include "tools/tutti/train_options.h"
#include "tools/tutti/train_plot.h"
#include "tools/tutti/train_report.h"
#include "tools/tutti/train_setup.h"
#include "training/checkpoint/exchange.h"
#include "training/initial.h"
#include "training/kernels/peak.h"
#include "training/modules/batch_norm.h"
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

// The lines of --json. A run that goes on adds to what is there; a new one begins the file anew,
// but not before it has something to say: a run that is refused takes nothing away.
class StepLog {
 public:
  StepLog(std::string path, bool goes_on)
      : path_(std::move(path)), goes_on_(goes_on), file_(open_for_appending(path_, kOption)) {}

  void write(const Json& object) {
    if (!file_.is_open()) return;
    if (!std::exchange(begun_, true)) begin();
    append(file_, path_, object.dump() + '\n', kOption);  // a run that dies leaves what it did
  }

 private:
  static constexpr const char* kOption = "--json";

  void begin() {
    if (!goes_on_) {
      file_ = open_for_writing(path_, kOption);
      return;
    }
    // A process that was killed may have left half a line.
    const std::string text = file_text(path_);
    const size_t whole = text.rfind('\n') + 1;  // 0 where there is none
    if (whole != text.size()) std::filesystem::resize_file(path_, whole);
  }

  std::string path_;
  bool goes_on_;
  bool begun_ = false;
  std::ofstream file_;
};

void print_result(const LoadedData& data, const TrainResult& result, double units_per_sample,
                  const char* unit, int ranks) {
  const training::Evaluation& validation = result.validation;
  if (result.stopped_by == 0) {
    std::printf("validation loss  %.4f nats, %.4f bits (%lld held-out %s, %.2f%% right)\n",
                validation.loss, validation.loss / std::numbers::ln2,
                static_cast<long long>(validation.targets), unit, 100 * validation.correct);
  }
  if (data.bigram_entropy > 0 && result.stopped_by == 0) {
    const double below = 100.0 * (1.0 - validation.loss / data.bigram_entropy);
    std::printf("byte bigrams     %.4f nats over the text's %llu bytes; the model is %.1f%% %s\n",
                data.bigram_entropy, static_cast<unsigned long long>(data.text_bytes),
                std::abs(below), below >= 0 ? "below" : "above");
  }
  std::printf("speed            %.0f %s/s on %d rank%s, %.1f%% of the time waiting for others\n",
              result.samples_per_second * units_per_sample, unit, ranks, ranks == 1 ? "" : "s",
              100.0 * result.waiting_share);
  print_memory(result.memory, result.process_bytes);
}

Json summary(const LoadedData& data, const TrainResult& result, double units_per_sample,
             int ranks) {
  const training::Evaluation& validation = result.validation;
  Json all;
  if (result.stopped_by == 0) {
    all = {{"validation_loss", validation.loss},
           {"validation_bits_per_byte", validation.loss / std::numbers::ln2},
           {"validation_samples", validation.targets},
           {"validation_accuracy", validation.correct}};
  } else {
    all = {{"stopped_by_signal", result.stopped_by}, {"stopped_at", result.step}};
  }
  all["bigram_entropy"] = data.bigram_entropy;
  all["samples_per_s"] = result.samples_per_second;
  all["tokens_per_s"] = result.samples_per_second * units_per_sample;
  all["communication_share"] = result.waiting_share;
  all["ranks"] = ranks;
  all["resumed_at"] = result.resumed_at;
  if (!result.run.empty()) all["run"] = result.run;
  all["memory"] = json_of(result.memory);
  all["process_bytes"] = result.process_bytes;
  return all;
}

void print_stop(const TrainResult& result, const TrainCommand& options) {
  const std::string& directory = options.training.checkpoint;
  std::printf("stopped          by signal %d (%s) after step %llu; %s\n", result.stopped_by,
              ::strsignal(result.stopped_by), static_cast<unsigned long long>(result.step),
              directory.empty() ? "nothing is saved: there was no --checkpoint"
              : result.step == 0
                  ? "there was nothing to save"
                  : cat("it is saved in ", directory, ": go on with --resume").c_str());
}

// What one rank does. Returns the exit code.
int train_as_rank(TrainCommand& options, const LoadedData& data) {
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
  const StopSignals signals;
  options.training.stop_requested = StopSignals::requested;
  const auto exit_code = [](const TrainResult& result) {
    return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
  };
  if (world.rank() != 0) {
    return exit_code(
        training::train(mesh, *model, data.views(), options.training, [](const StepReport&) {}));
  }
  StepLog log(options.json, options.training.resume);
  const Picture picture(options.plot, "--plot");
  LossCurves curves;
  const auto units = static_cast<double>(model->targets_per_sample());
  const char* unit = units > 1 ? "tokens" : "samples";
  Progress progress(unit, units, training::measured_peak(options.training.replica.storage.dtype),
                    world.size(), options.on_terminal || is_terminal());
  const TrainResult result =
      training::train(mesh, *model, data.views(), options.training, [&](const StepReport& report) {
        Json line = json_of(report, units);
        if (curves.training.empty() && options.training.resume) {
          line["resumed_at"] = report.step - 1;  // lines of later steps before this one are void
        }
        log.write(line);
        progress.show(report);
        curves.training.emplace_back(report.step, report.result.loss);
        if (report.validation) curves.validation.emplace_back(report.step, report.validation->loss);
      });
  if (picture.wanted()) plot_losses(picture, model->description(), {&curves, 1});
  if (result.stopped_by != 0) print_stop(result, options);
  print_result(data, result, units, unit, world.size());
  const training::PipelineOptions& pipeline = options.training.replica.pipeline;
  print_pipeline(result.pipeline, pipeline, *model);
  Json last = summary(data, result, units, world.size());
  if (!result.pipeline.cut.empty()) last["pipeline"] = json_of(result.pipeline, pipeline);
  log.write(last);
  return exit_code(result);
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

// A model for which statistics are those of all ranks, where there are none yet.
struct NoRanks : training::StatisticsReducer {
  void sum(std::span<double>) override {}
};

// Files that cannot be written are found before the work is done, and so is a directory that is not
// this run's.
void check_outputs(const TrainCommand& options, const LoadedData& data) {
  NoRanks no_ranks;
  training::check_directory(*make_model(options, &no_ranks), data.views(), options.training);
  open_for_appending(options.json, "--json");
  open_for_appending(options.training.trace, "--trace");
  Picture(options.plot, "--plot");
}

int train(TrainCommand options) {
  // What is wrong for every rank is said once, before there are any.
  LoadedData data = load_data(options);
  const int wanted = wanted_ranks(options);
  const int ranks = wanted != 0 ? wanted : useful_ranks(options, data);
  const std::unique_ptr<training::Model> model = make_model(options);
  if (!is_launched()) {
    TrainCommand tried = options;
    settle(tried, ranks, data.examples());
    if (const std::string& initial = options.training.initial; !initial.empty()) {
      check_initial(*model, training::ImportedModel(initial), initial);
    }
    check_outputs(tried, data);
    if (ranks > 1) {
      data = {};  // the ranks have their own
      return launch_self(ranks, is_terminal() ? std::vector<std::string>{kOnTerminal}
                                              : std::vector<std::string>{});
    }
  }
  return train_as_rank(options, data);
}

}  // namespace

void add_train(CommandLine& line) {
  const auto options = std::make_shared<TrainCommand>();
  Command command =
      line.add("train", "Train a language model or an image classifier on many ranks");
  add_train_options(command, *options);
  command.add_flag(kOnTerminal, options->on_terminal).group("");  // not in --help
  command.footer(
      "Examples:\n"
      "  tutti train --data TEXT --ranks 2 --json losses.jsonl\n"
      "  tutti train --data TEXT --model gpt2 --layers 6 --heads 6 --width 384 --context 256 \\\n"
      "    --ranks 2 --zero 2 --precision bf16 --checkpoint DIR\n"
      "  tutti train --data TEXT --model gpt2 --dp 2 --pp 2 --schedule zb-h1 --micro-batches 8\n"
      "  tutti train --data TEXT --checkpoint DIR --checkpoint-every 100 --resume\n"
      "A directory of checkpoints is one run's. SIGINT and SIGTERM end it after the step, which "
      "is\n"
      "saved; the exit code is 128 + the signal's number. A second one ends it at once.\n"
      "The losses do not depend on --ranks, but for rounding; with TUTTI_DETERMINISTIC=1 not on\n"
      "--zero, --bucket-mb or --recompute either, nor on --pp with any synchronous schedule but\n"
      "Chimera, not by a bit.");
  command.runs([options, command] {
    refuse_what_is_ignored(command, *options);
    return train(*options);
  });
}

}  // namespace tutti::tool
