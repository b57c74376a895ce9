// tutti train: trains a model on many ranks: data-parallel, in pipelines, or both.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/processors.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/gnuplot.h"
#include "tools/tutti/stop_signals.h"
#include "tools/tutti/train/dry_run.h"
#include "tools/tutti/train/files.h"
#include "tools/tutti/train/mix.h"
#include "tools/tutti/train/plan.h"
#include "tools/tutti/train/plot.h"
#include "tools/tutti/train/profile.h"
#include "tools/tutti/train/report.h"
#include "training/checkpoint/initial.h"
#include "training/kernels/peak.h"
#include "training/language/model_source.h"
#include "training/parallel/join.h"
#include "training/run/run_origin.h"
#include "training/setup/data.h"
#include "training/setup/options.h"
#include "training/setup/report.h"
#include "training/setup/session.h"
#include "training/setup/settle.h"
#include "training/setup/surviving_run.h"

namespace tutti::tool {
namespace {

using training::LoadedData;
using training::RunOptions;
using training::StepReport;
using training::TrainResult;

// Options of `tutti train`: those of the run, and those of the command itself.
struct TrainCommandOptions {
  training::GivenOptions given_options;
  RunOptions run;  // the resulting run
  // 0: the number of ranks that the launcher started or, without a launcher, that the mesh
  // requires; if it requires none, useful_ranks().
  int ranks = 0;
  TrainFiles::Paths files;
  std::string plot;
  std::string profile;           // kProfileTable or the file of a picture; empty: none
  std::optional<int> min_ranks;  // training continues while at least this many ranks survive
  int spares = 0;
  std::optional<int> copy_every;
  std::optional<int> copies;
  std::string plan = "none";  // "auto": the layout is searched
  bool print_configuration = false;
  bool dry_run = false;
  bool digest = false;
  // Width of the terminal at the end of standard output, possibly behind the launcher's pipe; 0:
  // there is no terminal.
  int columns = 0;
  int64_t log_every = 0;
};

// Hidden option that the launching process passes to its ranks.
constexpr const char* kColumns = "--columns";

// Returns the terminal's width; 0 if standard output is not a terminal.
int columns_of_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  winsize window{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return known ? window.ws_col : 80;
}

void print_result(const LoadedData& data, const TrainResult& result, double units_per_sample,
                  const char* unit, int ranks) {
  const training::Evaluation& validation = result.validation;
  if (result.stopped_by == 0) {
    const std::string perplexity =
        validation.of_tokens ? cat("perplexity ", std::exp(validation.loss), ", ") : "";
    std::printf("validation loss  %.4f nats, %.4f bits (%s%lld held-out %s, accuracy %.2f%%)\n",
                validation.loss, validation.loss / std::numbers::ln2, perplexity.c_str(),
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
  std::printf("instructions     %s\n", std::string(name(selected_instruction_set())).c_str());
  print_memory(result.memory, result.process_bytes);
  if (result.checkpoints > 0) {
    std::printf("checkpoints      %d saved; checkpointing blocked training for %.3f s\n",
                result.checkpoints, result.checkpoint_seconds);
  }
}

// Prints the epochs of each data set.
void print_epochs(const std::vector<double>& epochs, const RunOptions& options) {
  std::string text;
  for (size_t i = 0; i < epochs.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.2f", epochs[i]);
    text += cat(i == 0 ? "" : ", ", number);
    if (epochs.size() == options.data.size()) text += cat(" of ", options.data[i]);
  }
  std::printf("epochs           %s\n", text.c_str());
}

void print_stop(const TrainResult& result, const RunOptions& options) {
  const std::string& directory = options.training.checkpoint;
  std::printf("stopped          by signal %d (%s) after step %llu; %s\n", result.stopped_by,
              ::strsignal(result.stopped_by), static_cast<unsigned long long>(result.step),
              directory.empty() ? "nothing was saved, because --checkpoint was not given"
              : result.step == 0
                  ? "there was nothing to save"
                  : cat("it was saved in ", directory, ": continue with --resume").c_str());
}

int exit_code(const TrainResult& result) {
  return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
}

// Returns the line that --json gets when training continues after a failure.
Json json_of(const training::Continuation& after, const training::Session& session,
             uint64_t continues_from) {
  return {{"lost_ranks", after.lost_ranks},
          {"lost_after_step", after.last_step},
          {"continues_from", continues_from},
          {"ranks", session.world().size()}};
}

// Runs rank 0, which prints and writes the files.
int train_as_first(training::Session& session, const TrainCommandOptions& options,
                   const training::Continuation* after) {
  // With --resume auto, a run may be new.
  const bool resumes = after != nullptr || session.trainer().step() > 0;
  const training::Model& model = session.model();
  const training::ReplicaOptions& replica = session.options().training.replica;
  const int ranks = session.world().size();
  TrainFiles files(options.files, training::scalar_names(model),
                   resumes ? std::optional(session.trainer().step()) : std::nullopt);
  if (after != nullptr) files.write_event(json_of(*after, session, session.trainer().step()));
  const Picture picture(options.plot, "--plot");
  const Picture profile_picture = tool::profile_picture(options.profile);
  LossCurves curves;
  const auto units = static_cast<double>(model.targets_per_sample());
  const char* unit = units > 1 ? "tokens" : "samples";
  // Measured only once. After a failure, the other ranks must not wait for another measurement
  // while their states have no copies.
  static const double peak = training::measured_peak(replica.storage.dtype);
  static const double bandwidth =
      options.profile.empty() ? 0 : training::measured_bandwidth(replica.threads);
  Progress progress({.unit = unit,
                     .units_per_sample = units,
                     .peak = peak * replica.threads * ranks,
                     .columns = options.columns > 0 ? options.columns : columns_of_terminal(),
                     .log_every = static_cast<uint64_t>(options.log_every)});
  while (const std::optional<StepReport> report = session.trainer().next()) {
    Json line = json_of(*report, units);
    if (curves.training.empty() && resumes) {
      line["resumed_at"] = report->step - 1;
    }
    files.write(report->step, line);
    progress.show(*report);
    curves.training.emplace_back(report->step, report->result.loss);
    if (report->validation) curves.validation.emplace_back(report->step, report->validation->loss);
  }
  const TrainResult result = session.trainer().finish();
  if (picture.wanted())
    plot_losses(picture, training::in_words(model.configuration()), {&curves, 1});
  if (result.stopped_by != 0) print_stop(result, session.options());
  print_result(session.data(), result, units, unit, ranks);
  print_epochs(result.epochs, session.options());
  print_pipeline(result.pipeline, replica.pipeline, model);
  print_factors(result.factors);
  print_digests(result.digests);
  Json last = json_of(result, session.data(), units, ranks);
  if (const std::string& mix = session.options().mix; !mix.empty()) last["mix"] = mix;
  if (!result.pipeline.cut.empty()) last["pipeline"] = json_of(result.pipeline, replica.pipeline);
  if (result.profile) {
    const MeasuredPeaks peaks{peak * replica.threads, bandwidth};
    print_profile(*result.profile, peaks);
    last["profile"] = json_of(*result.profile, peaks);
    plot_profile(profile_picture, *result.profile);
  }
  files.write(result.step, last);
  return exit_code(result);
}

int train_in(training::Session& session, const TrainCommandOptions& options,
             const training::Continuation* after) {
  if (session.world().rank() == 0) return train_as_first(session, options, after);
  while (session.trainer().next()) {
  }
  return exit_code(session.trainer().finish());
}

// Returns the ranks that the launcher started. Throws if their number is not that of --ranks and
// --spares.
Communicator join_ranks(const TrainCommandOptions& options) {
  Communicator world = training::join(options.run.mesh);
  if (options.ranks != 0 && options.ranks + options.spares != world.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("--ranks ", options.ranks,
                    options.spares > 0 ? cat(" and --spares ", options.spares, " were") : " was",
                    " requested, but the launcher started ", world.size(),
                    world.size() == 1 ? " rank" : " ranks"),
                {.where = world.describe(world.rank()),
                 .remedy = "remove --ranks, or start as many ranks"});
  }
  return world;
}

// Runs one rank. Returns the exit code.
int train_as_rank(TrainCommandOptions& options, LoadedData data) {
  Communicator world = join_ranks(options);
  const StopSignals signals;
  options.run.training.stop_requested = StopSignals::requested;
  options.run.training.profile = !options.profile.empty();
  options.run.training.digest = options.digest;
  if (options.min_ranks || options.spares > 0) {
    const int ranks = world.size() - options.spares;
    training::SurvivalOptions survival{.ranks = ranks,
                                       .min_ranks = options.min_ranks.value_or(ranks)};
    if (options.copy_every) survival.copy_every = static_cast<uint64_t>(*options.copy_every);
    survival.copies = options.copies.value_or(survival.copies);
    bool was_needed = options.spares == 0;
    const int code =
        run_with_survivors(world, options.run, std::move(data), survival,
                           [&](training::Session& session, const training::Continuation* after) {
                             const int code = train_in(session, options, after);
                             was_needed = true;
                             return code;
                           });
    if (was_needed || code != 0) return code;
    return static_cast<int>(settings().get_int("TUTTI_UNNEEDED_CODE"));
  }
  training::Session session(world, options.run,
                            std::make_shared<const LoadedData>(std::move(data)));
  return train_in(session, options, nullptr);
}

// Returns the default number of ranks: one per core, but at most one per micro-batch of a step.
int useful_ranks(const RunOptions& options, const LoadedData& data) {
  const int cores = usable_processors();
  RunOptions tried = options;
  settle(tried, cores, data.examples());
  const uint64_t micro_batch = tried.training.micro_batch;
  const uint64_t micro_batches = (tried.training.batch + micro_batch - 1) / micro_batch;
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(cores), micro_batches));
}

// Returns the number of ranks that the options require; 0: any number.
int wanted_ranks(const TrainCommandOptions& options) {
  if (options.ranks != 0) return options.ranks;
  const training::MeshShape& mesh = options.run.mesh;
  const int64_t of_a_stage = mesh.of_a_sample();
  if (mesh.data == 0 && mesh.pipeline * of_a_stage * mesh.expert == 1) return 0;
  const int64_t for_experts = (mesh.expert + of_a_stage - 1) / of_a_stage;
  const double ranks = static_cast<double>(mesh.data == 0 ? for_experts : mesh.data) *
                       mesh.pipeline * static_cast<double>(of_a_stage);
  constexpr int kTooMany = 1 << 30;  // a number that is too large for any host
  return static_cast<int>(std::min<double>(ranks, kTooMany));
}

// Reports files that cannot be written, and a directory of another run, before training.
void check_outputs(const RunOptions& settled, const TrainCommandOptions& options,
                   const LoadedData& data) {
  const std::unique_ptr<training::Model> model = training::make_model(settled.model);
  check_directory(*model, data.views(), settled.training);
  TrainFiles(options.files, training::scalar_names(*model),
             settled.training.resume ? kWholeFile : std::nullopt);
  open_for_appending(settled.training.trace, "--trace");
  Picture(options.plot, "--plot");
  profile_picture(options.profile);
}

int train(TrainCommandOptions options) {
  // Errors that concern every rank are reported once, before ranks are started.
  LoadedData data = load_data(options.run);
  if (!is_launched()) {
    for (const std::string& text : data.skipped) std::fprintf(stderr, "tutti: %s\n", text.c_str());
  }
  const std::unique_ptr<training::Model> model = training::make_model(options.run.model);
  const bool only_reports = options.print_configuration || options.dry_run;
  const bool launched = is_launched();
  const bool is_planned = options.plan == "auto";
  if (launched && is_planned) {
    throw Error(
        ErrorCode::unsupported, "--plan auto must run before ranks are started",
        {.cause = "a launcher has already started the ranks",
         .remedy = "run without the launcher, or use the options that `tutti plan` prints"});
  }
  if (is_planned && options.run.mix == training::kSearchedMix) {
    throw UsageError("--plan auto excludes --mix auto: use --tp and --mix auto");
  }
  if (launched && !only_reports) return train_as_rank(options, std::move(data));
  int ranks = wanted_ranks(options);
  if (launched) {
    const Communicator world = join_ranks(options);
    if (world.rank() != 0) return 0;  // rank 0 prints for all
    ranks = world.size() - options.spares;
  } else if (ranks == 0) {
    ranks = useful_ranks(options.run, data);
  }
  check_min_ranks(options.min_ranks, ranks);
  std::vector<std::string> for_ranks;  // options that are passed to the ranks
  if (is_planned) for_ranks = take_plan(options.run, ranks, !only_reports);
  if (options.run.mix == training::kSearchedMix) {
    for (std::string& option : take_mix(options.run, ranks, !options.print_configuration)) {
      for_ranks.push_back(std::move(option));
    }
  }
  RunOptions tried = options.run;
  settle(tried, ranks, data.examples());
  if (options.print_configuration) {
    std::printf("%s\n", tried.training.configuration.dump(2).c_str());
    return 0;
  }
  const std::string& initial = tried.training.initial;
  if (!initial.empty() && starts_over(tried.training)) {
    check_initial(*model, *training::open_model(initial).values, initial);
  }
  if (options.dry_run) return dry_run(tried, data, ranks, options.files.json);
  check_outputs(tried, options, data);
  if (ranks + options.spares == 1) return train_as_rank(options, std::move(data));
  data = {};  // free the data, because the ranks load their own
  const int columns = columns_of_terminal();
  if (columns > 0) for_ranks.push_back(cat(kColumns, "=", columns));
  return launch_self({.ranks = ranks, .spares = options.spares, .min_ranks = options.min_ranks},
                     for_ranks);
}

void add_own_options(Command command, TrainCommandOptions& options) {
  constexpr auto kGroup = "Output";
  command
      .add_option("--ranks,-n", options.ranks,
                  "number of ranks to start on this host (default: its number of cores)")
      .between(1, 65536);
  command
      .add_option("--min-ranks", options.min_ranks,
                  "continue after failures while at least N ranks survive (default: stop at a "
                  "failure; with --spares: the number of training ranks)")
      .type_name("N")
      .between(1, 65536);
  command
      .add_option("--spares", options.spares,
                  "number of additional ranks, which replace failed ranks (default: 0)")
      .between(0, 65536);
  command
      .add_option("--copy-every", options.copy_every,
                  "with --min-ranks or --spares: number of steps after which each rank's state is "
                  "copied to other ranks' memory (default: 1)")
      .between(1, 1 << 30);
  command
      .add_option(
          "--copies", options.copies,
          "with --min-ranks or --spares: number of other ranks that hold a copy of each rank's "
          "state; training survives as many simultaneous failures (default: 2)")
      .between(1, 65535);
  command
      .add_option(
          "--plan", options.plan,
          "how to choose the options of the parallel layout that are not given (such as --dp, --tp "
          "and --pp): none (use their defaults), or auto (time the model's layers on this host, "
          "then use the layout that `tutti plan` predicts to be fastest) (default: none)")
      .one_of({"auto", "none"});
  command
      .add_option("--json", options.files.json,
                  "write each step and a summary as JSON lines; a resumed run appends")
      .type_name("FILE")
      .group(kGroup);
  command
      .add_option("--csv", options.files.csv,
                  "write each step as comma-separated values; a resumed run appends")
      .type_name("FILE")
      .group(kGroup);
  command
      .add_option("--tensorboard", options.files.tensorboard,
                  "write each step's metrics as a TensorBoard event file into this directory")
      .type_name("DIR")
      .group(kGroup);
  command
      .add_flag("--dry-run", options.dry_run,
                "print the planned run and the memory it needs per rank, then exit")
      .group(kGroup);
  command.add_option("--plot", options.plot, "plot the losses into this file")
      .type_name("FILE.svg")
      .group(kGroup);
  command
      .add_option("--profile", options.profile,
                  "at the end, print time, FLOPs, bytes and fraction of the measured peak on rank "
                  "0, for each unit of the model and each kernel; with FILE.svg: also plot them")
      .type_name("FILE.svg")
      .or_alone(kProfileTable)
      .group(kGroup);
  command
      .add_flag(
          "--digest", options.digest,
          "print a digest of each rank's parameters at the end; data-parallel ranks have equal "
          "digests")
      .group(kGroup);
  command
      .add_flag("--print-config", options.print_configuration,
                "print the configuration, in the format of --config, and exit")
      .group(kGroup);
  command
      .add_option("--log-every", options.log_every,
                  "steps between permanent progress lines (default: a tenth of the run)")
      .between(1, 1e9)
      .group(kGroup);
  command.add_option(kColumns, options.columns, "").group("");  // not in --help
}

}  // namespace

void add_train(CommandLine& line) {
  const auto options = std::make_shared<TrainCommandOptions>();
  Command command =
      line.add("train", "train a language model or an image classifier on many ranks");
  add_run_options(command, options->given_options);
  add_own_options(command, *options);
  command.footer(
      "Examples:\n"
      "  tutti train --data TEXT --ranks 2 --json losses.jsonl\n"
      "  tutti train --data TEXT --model gpt2 --layers 6 --heads 6 --width 384 --context 256 \\\n"
      "    --ranks 2 --zero 2 --precision bf16 --checkpoint DIR\n"
      "  tutti train --data TEXT --model gpt2 --dp 2 --pp 2 --schedule zb-h1 --micro-batches 8\n"
      "  tutti train --data TEXT --model llama --tp 2 --dp 2 --sp\n"
      "  tutti train --data shapes:64x64 --model unet --spatial 2x1 --steps 100\n"
      "  tutti train --data IMAGES --model convnet --filters 16 32 --widths 256 --tp 2 --mix auto\n"
      "  tutti train --data TEXT --checkpoint DIR --checkpoint-every 100 --resume\n"
      "  tutti train --config run.json --set optimizer.lr=0.001 --steps 500\n"
      "A checkpoint directory belongs to one run. SIGINT and SIGTERM end the run after the current "
      "step,\n"
      "which is saved; the exit code is 128 + the signal's number. A second signal ends it "
      "immediately.\n"
      "The losses do not depend on --ranks except for rounding (and with --sync methods whose "
      "ranks\n"
      "diverge between synchronizations). With TUTTI_DETERMINISTIC=1 they are bitwise independent "
      "of\n"
      "--tp, --cp, --sp, --zero, --bucket-mb and --recompute, and of --pp for every synchronous "
      "schedule\n"
      "except Chimera.");
  command.runs([options] {
    options->run = options_of(options->given_options);
    if (options->run.data.empty()) throw UsageError("--data is required");
    const bool survives = options->min_ranks || options->spares > 0;
    if (!survives && (options->copies || options->copy_every)) {
      throw UsageError(cat(options->copies ? "--copies" : "--copy-every",
                           " has no effect without --min-ranks or --spares"));
    }
    return train(*options);
  });
}

}  // namespace tutti::tool
