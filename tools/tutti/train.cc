// tutti train: trains a byte-level language model, data-parallel.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "training/data/text_data.h"
#include "training/trainer.h"

namespace tutti::tool {
namespace {

using training::StepReport;
using training::TextData;
using training::TrainResult;

// Passed from the process that launches to its ranks.
constexpr const char* kOnTerminal = "--on-terminal";

struct Options {
  std::vector<std::string> data;
  int ranks = 0;  // 0: one per allowed core, or as many as the launcher started
  std::string optimizer = "adamw";
  std::optional<float> learning_rate;  // empty: the optimizer's own
  std::optional<float> weight_decay;
  std::string json;
  bool on_terminal = false;  // standard output ends on one, though through the launcher's pipe
  training::TrainOptions training;
};

int allowed_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

bool is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

void write_line(std::ofstream& file, const std::string& path,
                const nlohmann::ordered_json& object) {
  if (!file.is_open()) return;
  errno = 0;
  file << object.dump() << std::endl;  // flushed: a run that dies leaves what it did
  if (!file) throw system_error(cat("cannot write ", path), errno, {.where = "--json"});
}

// One line that is rewritten, on a terminal; a line every tenth of the way, elsewhere.
class Progress {
 public:
  Progress(int64_t steps, int64_t batch, bool on_terminal)
      : steps_(steps), batch_(batch), terminal_(on_terminal) {}

  void show(const StepReport& report) {
    if (!due(report)) return;
    const double elapsed = std::chrono::duration<double>(report.elapsed).count();
    const double done = static_cast<double>(report.step);
    const double left = elapsed / done * static_cast<double>(steps_ - report.step);
    std::printf("%sstep %*lld/%lld  loss %.4f  %.0f samples/s  %.0f s left%s",
                terminal_ ? "\r" : "", width_, static_cast<long long>(report.step),
                static_cast<long long>(steps_), report.loss,
                done * static_cast<double>(batch_) / elapsed, std::ceil(left),
                terminal_ && report.step < steps_ ? "\033[K"
                : terminal_                       ? "\033[K\n"
                                                  : "\n");
    std::fflush(stdout);
  }

 private:
  bool due(const StepReport& report) {
    if (!terminal_) return report.step * 10 / steps_ > (report.step - 1) * 10 / steps_;
    if (report.step < steps_ && report.elapsed < next_) return false;
    next_ = report.elapsed + std::chrono::milliseconds(200);
    return true;
  }

  int64_t steps_;
  int64_t batch_;
  bool terminal_;
  int width_ = static_cast<int>(std::to_string(steps_).size());
  std::chrono::nanoseconds next_{0};
};

void print_result(const TextData& text, const TrainResult& result, double entropy, int ranks) {
  const double below = 100.0 * (1.0 - result.validation_loss / entropy);
  std::printf("validation loss  %.4f nats, %.4f bits per byte (%lld held-out bytes)\n",
              result.validation_loss, result.validation_loss / std::numbers::ln2,
              static_cast<long long>(result.validation_samples));
  std::printf("byte bigrams     %.4f nats over the text's %zu bytes; the model is %.1f%% %s\n",
              entropy, text.bytes.size(), std::abs(below), below >= 0 ? "below" : "above");
  std::printf("speed            %.0f samples/s on %d rank%s, %.1f%% of the time in communication\n",
              result.samples_per_second, ranks, ranks == 1 ? "" : "s",
              100.0 * result.communication_share);
}

nlohmann::ordered_json summary(const TrainResult& result, double entropy, int ranks) {
  return {{"validation_loss", result.validation_loss},
          {"validation_bits_per_byte", result.validation_loss / std::numbers::ln2},
          {"validation_samples", result.validation_samples},
          {"bigram_entropy", entropy},
          {"samples_per_s", result.samples_per_second},
          {"communication_share", result.communication_share},
          {"ranks", ranks}};
}

// What one rank does.
void train_as_rank(const Options& options, const TextData& text) {
  Communicator world = Communicator::init();
  if (options.ranks != 0 && options.ranks != world.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("--ranks ", options.ranks, " was asked for, but the launcher started ",
                    world.size(), world.size() == 1 ? " rank" : " ranks"),
                {.where = world.describe(world.rank()),
                 .remedy = "leave --ranks out, or start as many ranks"});
  }
  if (world.rank() != 0) {
    training::train(world, text, options.training, [](const StepReport&) {});
    return;
  }
  std::ofstream json = open_for_writing(options.json, "--json");
  Progress progress(options.training.steps, options.training.batch,
                    options.on_terminal || is_terminal());
  const TrainResult result =
      training::train(world, text, options.training, [&](const StepReport& report) {
        write_line(json, options.json, {{"step", report.step}, {"loss", report.loss}});
        progress.show(report);
      });
  const double entropy = training::bigram_entropy(text.bytes);
  print_result(text, result, entropy, world.size());
  write_line(json, options.json, summary(result, entropy, world.size()));
}

int train(Options options) {
  options.training.optimizer =
      options.optimizer == "sgd" ? training::OptimizerKind::sgd : training::OptimizerKind::adamw;
  options.training.learning_rate = options.learning_rate;
  options.training.weight_decay = options.weight_decay;
  // What is wrong for every rank is said once, before there are any.
  options.training.check();
  const TextData text = training::load_text(options.data);
  const int ranks = options.ranks != 0 ? options.ranks : allowed_cores();
  if (!is_launched() && ranks > 1) {
    open_for_writing(options.json, "--json");
    return launch_self(
        ranks, is_terminal() ? std::vector<std::string>{kOnTerminal} : std::vector<std::string>{});
  }
  train_as_rank(options, text);
  return 0;
}

void add_model_options(CLI::App& command, training::TrainOptions& training) {
  constexpr auto kModel = "Model";
  const auto add = [&](const char* name, int64_t& value, const char* meaning) {
    command.add_option(name, value, meaning)->group(kModel)->capture_default_str();
  };
  add("--context", training.model.context, "bytes that the model sees");
  add("--embedding", training.model.embedding, "values per byte");
  add("--hidden", training.model.hidden, "values per hidden layer");
  add("--layers", training.model.layers, "hidden layers");
}

void add_optimizer_options(CLI::App& command, Options& options) {
  constexpr auto kOptimizer = "Optimizer";
  training::TrainOptions& training = options.training;
  command.add_option("--optimizer", options.optimizer, "adamw, or sgd with momentum 0.9")
      ->group(kOptimizer)
      ->check(CLI::IsMember({"adamw", "sgd"}).description(""))
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--lr", options.learning_rate,
                  "peak learning rate (default: 0.006 for adamw, 0.3 for sgd)")
      ->group(kOptimizer);
  command.add_option("--warmup", training.warmup_steps, "steps of linear warm-up; then a cosine")
      ->group(kOptimizer)
      ->capture_default_str();
  command
      .add_option("--weight-decay", options.weight_decay,
                  "on matrices, not on biases (default: 0.01 for adamw, 0 for sgd)")
      ->group(kOptimizer);
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  const auto options = std::make_shared<Options>();
  training::TrainOptions& training = options->training;
  CLI::App* command =
      app.add_subcommand("train", "Train a byte-level language model on text, data-parallel");
  command->add_option("--data", options->data, "text files, or directories of them")
      ->required()
      ->type_name("PATH");
  command->add_option("--ranks,-n", options->ranks, "processes on this host (default: its cores)")
      ->check(CLI::Range(1, 65536).description(""));
  command->add_option("--steps", training.steps, "optimizer steps")->capture_default_str();
  command->add_option("--batch", training.batch, "samples per step over all ranks")
      ->capture_default_str();
  command->add_option("--seed", training.seed, "of initial values and of samples")
      ->capture_default_str();
  command
      ->add_option("--json", options->json, "write each step's loss and a summary, one JSON a line")
      ->type_name("FILE");
  command->add_flag(kOnTerminal, options->on_terminal)->group("");  // not in --help
  add_model_options(*command, training);
  add_optimizer_options(*command, *options);
  command->footer(
      "Example, two ranks on the text of the Debian package fortunes:\n"
      "  tutti train --ranks 2 --data /usr/share/games/fortunes --json losses.jsonl\n"
      "The losses do not depend on --ranks, but for rounding.");
  command->callback([options, &chosen] { chosen = [options] { return train(*options); }; });
}

}  // namespace tutti::tool
