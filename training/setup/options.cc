#include "training/setup/options.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "training/setup/flags.h"

namespace tutti::training {
namespace {

constexpr double kMostOfAnything = 1e9;  // steps, samples: their products are 64-bit numbers

constexpr auto kLayoutGroup = "Memory and parallelism";

void one_of(Option option, std::vector<std::string> names) {
  option.one_of(std::move(names)).type_name("NAME").show_default();
}

void add_run(Command command, RunOptions& options) {
  TrainOptions& training = options.training;
  command
      .add_option("--data", options.data,
                  "text files, directories of them, or token files (.bin); for resnet a "
                  "directory with MNIST's four files")
      .required()
      .type_name("PATH");
  command.add_option("--validation", options.validation,
                     "a token file to validate on (default: the last tenth of the data)");
  command.add_option("--data-weights", training.data_weights,
                     "a weight for each --data: each is a data set of its own");
  command.add_option("--steps", options.steps, "optimizer steps (default: 200)")
      .between(0, kMostOfAnything);
  command.add_option("--epochs", options.epochs, "instead of --steps: times through the data");
  command
      .add_option("--batch", options.batch,
                  "samples per step over all ranks (default: 1536; gpt2: 32; resnet: 128)")
      .between(0, kMostOfAnything);
  command
      .add_option("--micro-batch", options.micro_batch,
                  "samples of one forward and backward pass (default: 32; gpt2: 8; resnet: 64)")
      .between(0, kMostOfAnything);
  command
      .add_option("--micro-batches,--accumulate", options.micro_batches,
                  "instead of --batch: micro-batches of each data-parallel rank in a step")
      .between(0, kMostOfAnything);
  command.add_option("--seed", training.seed, "of initial values, samples and dropout")
      .show_default();
  command
      .add_option("--threads", options.threads,
                  "that compute together on each rank; results are the same for any number "
                  "(default: the rank's share of its host's cores)")
      .between(1, 4096);
  command.add_option("--workers", training.workers, "threads of each rank that read data ahead")
      .show_default();
}

void add_optimizer(Command command, RunOptions& options) {
  constexpr auto kGroup = "Optimizer";
  TrainOptions& training = options.training;
  const auto add = [&](const char* names, auto& value, const char* meaning) {
    return command.add_option(names, value, meaning).group(kGroup);
  };
  one_of(add("--optimizer", options.optimizer, "adamw, sgd, lamb or lars"),
         {"adamw", "sgd", "lamb", "lars"});
  add("--lr", options.learning_rate,
      "peak learning rate (default: adamw 0.006, gpt2 0.001, resnet 0.003; sgd 0.3, "
      "gpt2 and resnet 0.1; lamb 0.01; lars 1)");
  one_of(add("--lr-schedule", options.rate_schedule,
             "of the learning rate after warm-up: cosine, linear or constant"),
         {"cosine", "linear", "constant"});
  add("--warmup", training.schedule.warmup_steps, "steps of linear warm-up")
      .show_default()
      .between(0, kMostOfAnything);
  add("--weight-decay", options.weight_decay,
      "on matrices (default: adamw 0.01, gpt2 0.1; lamb 0.01; lars 0.0001; sgd 0)");
  add("--momentum", training.momentum, "of sgd and lars").show_default();
  add("--beta1", training.beta1, "of adamw and lamb").show_default();
  add("--beta2", training.beta2, "of adamw and lamb").show_default();
  add("--clip", options.clip, "the largest norm of all gradients together (gpt2: 1; 0: none)");
  one_of(add("--rate-scaling", options.rate_scaling, "how --lr grows with batch / --base-batch"),
         {"none", "linear", "sqrt"});
  add("--base-batch", options.base_batch, "the batch that --lr is right for")
      .between(0, kMostOfAnything);
}

void add_layout(Command command, RunOptions& options) {
  constexpr auto kGroup = kLayoutGroup;
  ReplicaOptions& replica = options.training.replica;
  command
      .add_option("--dp", options.mesh.data,
                  "data-parallel ranks (default: as many as --ranks and --pp leave)")
      .between(1, 65536)
      .group(kGroup);
  command.add_option("--pp", options.mesh.pipeline, "stages of a pipeline, each on a rank")
      .between(1, 65536)
      .show_default()
      .group(kGroup);
  command
      .add_option("--schedule", replica.pipeline.schedule,
                  "of the pipeline: see `tutti pipeline --list`")
      .type_name("NAME")
      .show_default()
      .group(kGroup);
  command
      .add_option("--virtual", options.virtual_stages,
                  "chunks of the model on each rank (default: interleaved 2)")
      .between(1, 1024)
      .group(kGroup);
  command
      .add_option(
          "--flush-every", options.training.flush_every,
          "pipedream and pipedream-2bw: steps after which the pipeline runs empty, and tells "
          "its losses; 0: at checkpoints and validation, and after 1024 steps")
      .between(0, 1024)
      .show_default()
      .group(kGroup);
  command
      .add_option("--cut", options.cut,
                  "where the model is cut: the first unit of each chunk (0,3,5), or balanced by "
                  "costs that are estimated, or measured at the start")
      .type_name("WHERE")
      .show_default()
      .group(kGroup);
  command
      .add_option("--zero", replica.storage.stage,
                  "ZeRO stage: 0 keeps everything on every rank; 1 cuts optimizer state into "
                  "shards, 2 gradients too, 3 parameters too")
      .between(0, 3)
      .show_default()
      .group(kGroup);
  add_pass_options(command, options);
  command
      .add_option("--loss-scale", options.loss_scale,
                  "of fp16: dynamic, none, or the first scale, a number")
      .show_default()
      .group(kGroup);
  command
      .add_flag(
          "--stochastic-rounding", replica.stochastic_rounding,
          "bf16 without fp32 masters: update the parameters themselves, rounded up or down by "
          "chance")
      .group(kGroup);
  command.add_option("--bucket-mb", options.bucket_mib, "MiB of gradients summed in one call")
      .show_default()
      .group(kGroup);
  command.add_flag("--no-overlap", options.no_overlap, "sum gradients when backward stands still")
      .group(kGroup);
  const Option compression =
      command.add_option("--compression", options.compression, "of gradients in stage 0");
  one_of(compression, {"none", "bf16", "fp16", "powersgd"});
  compression.group(kGroup);
  command.add_option("--compression-rank", options.training.compression_rank, "of powersgd")
      .show_default()
      .group(kGroup);
}

void add_output(Command command, RunOptions& options) {
  constexpr auto kGroup = "Output";
  TrainOptions& training = options.training;
  command
      .add_option("--trace", training.trace,
                  "write what each rank did when, for Perfetto or chrome://tracing")
      .type_name("FILE")
      .group(kGroup);
  command.add_option("--validate-every", training.validate_every, "steps (default: at the end)")
      .group(kGroup)
      .between(0, kMostOfAnything);
  command
      .add_option("--validation-samples", options.validation_samples,
                  "to validate on (default: 65536 predictions)")
      .group(kGroup)
      .between(0, kMostOfAnything);
  command.add_option("--checkpoint", training.checkpoint, "save at the end, in this directory")
      .type_name("DIR")
      .group(kGroup);
  command.add_option("--checkpoint-every", training.checkpoint_every, "save every so many steps")
      .group(kGroup)
      .between(0, kMostOfAnything);
  command.add_option("--keep", training.keep, "checkpoints to keep; 0: all")
      .show_default()
      .group(kGroup)
      .between(0, kMostOfAnything);
  command
      .add_option(
          "--resume", options.resume,
          "go on with the run in --checkpoint, from its newest whole step or from this one; "
          "auto: or start a run where there is none, as for launchers that start ranks anew")
      .type_name("[STEP|auto]")
      .or_alone(kNewestStep)
      .group(kGroup);
  command
      .add_option("--allow-changed", training.allow_changed,
                  "settings in which the resumed run may differ from the one that was saved: "
                  "lr,clip")
      .type_name("NAMES")
      .separated_by_commas()
      .group(kGroup);
  command
      .add_flag("--overwrite", training.overwrite,
                "start a new run in a directory that has one, which is removed when the new one "
                "has saved its first step")
      .group(kGroup);
  command
      .add_option("--initial", training.initial,
                  "parameters to start from (Hugging Face's GPT-2 files, or our own export)")
      .type_name("FILE.safetensors")
      .group(kGroup);
}

}  // namespace

void add_pass_options(Command command, RunOptions& options) {
  const Option precision =
      command.add_option("--precision", options.precision,
                         "of parameters, activations and gradients; the optimizer "
                         "works on fp32 masters");
  one_of(precision, {"f32", "float32", "fp32", "bf16", "bfloat16", "f16", "fp16", "float16"});
  precision.group(kLayoutGroup);
  const Option recompute = command.add_option(
      "--recompute,--activation-checkpointing", options.recompute,
      "activations that backward computes anew: none, selective (normalizations and activation "
      "functions), or full (all but each block's output)");
  one_of(recompute, {"none", "selective", "full"});
  recompute.group(kLayoutGroup);
}

void add_run_options(Command command, RunOptions& options) {
  options.training.beta2 = 0.99;  // forgets within some hundred steps: short runs profit
  options.training.schedule.warmup_steps = 10;
  options.training.schedule.final_fraction = 0.1;
  add_run(command, options);
  add_model_flags(command, options.model);
  add_optimizer(command, options);
  add_layout(command, options);
  add_output(command, options);
}

ModelContext model_context(const RunOptions& options, StatisticsReducer* statistics) {
  return {.selective_recomputation = options.recompute == "selective", .statistics = statistics};
}

RunOptions parse_run_options(const std::vector<std::string>& words) {
  RunOptions options;
  CommandLine line("", "", "");
  Command command = line.add("train", "");
  add_run_options(command, options);
  command.runs([&options, command] {
    refuse_what_is_ignored(command, options);
    return 0;
  });
  std::vector<std::string> all = {"train"};
  all.insert(all.end(), words.begin(), words.end());
  line.parse(std::move(all));
  return options;
}

void refuse_what_is_ignored(const Command& command, const RunOptions& options) {
  refuse_members_of_other_models(options.model);
  const std::string& optimizer = options.optimizer;
  const bool has_momentum = optimizer == "sgd" || optimizer == "lars";
  const std::string& precision = options.precision;
  const bool is_f16 = precision == "f16" || precision == "fp16" || precision == "float16";
  const struct {
    const char* option;
    bool is_used;
    const char* needs;
  } details[] = {
      {"--momentum", has_momentum, "--optimizer sgd or lars"},
      {"--beta1", !has_momentum, "--optimizer adamw or lamb"},
      {"--beta2", !has_momentum, "--optimizer adamw or lamb"},
      {"--base-batch", options.rate_scaling != "none", "--rate-scaling linear or sqrt"},
      {"--loss-scale", is_f16, "--precision f16"},
      {"--compression-rank", options.compression == "powersgd", "--compression powersgd"},
      {"--checkpoint-every", !options.training.checkpoint.empty(), "--checkpoint DIR"},
      {"--keep", !options.training.checkpoint.empty(), "--checkpoint DIR"},
  };
  for (const auto& detail : details) {
    if (detail.is_used || command.count(detail.option) == 0) continue;
    throw UsageError(cat(detail.option, " says nothing without ", detail.needs));
  }
}

}  // namespace tutti::training
