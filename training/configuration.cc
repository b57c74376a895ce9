#include "training/configuration.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "training/checkpoint/checksum.h"
#include "training/models/registry.h"
#include "training/parallel/throw_on_all.h"
#include "training/texts.h"

namespace tutti::training {
namespace {

// The length of the run: more of it is what many are resumed for.
constexpr const char* kSamples = "samples";
// With others of these there is nothing to go on from: tensors would not fit, or steps be counted
// anew.
constexpr std::array kFixed = {"model", "optimizer", "batch"};

// The shortest text that is read back as the same number.
std::string text_of(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

const char* name_of(OptimizerKind kind) {
  constexpr std::array kNames = {"adamw", "sgd", "lamb", "lars"};
  return kNames.at(static_cast<size_t>(kind));
}

const char* name_of(Compression compression) {
  constexpr std::array kNames = {"none", "bf16", "fp16", "powersgd"};
  return kNames.at(static_cast<size_t>(compression));
}

const char* name_of(LearningRateSchedule::Decay decay) {
  constexpr std::array kNames = {"constant", "linear", "cosine"};
  return kNames.at(static_cast<size_t>(decay));
}

std::string describe(const std::vector<const DataSet*>& data) {
  std::string text;
  for (const DataSet* set : data) {
    char print[32];
    std::snprintf(print, sizeof print, "%016llx",
                  static_cast<unsigned long long>(set->fingerprint()));
    text += cat(text.empty() ? "" : " + ", set->size(), " examples with fingerprint ", print);
  }
  return text;
}

std::string model_text(const Json& configuration) {
  return in_words(tensors_of_model(configuration));
}

// What only changes how it trains has settings of its own.
void add_model(Configuration& run, const Json& configuration) {
  run["model"] = model_text(configuration);
  const Json tensors = tensors_of_model(configuration);
  for (const auto& [key, value] : configuration.items()) {
    if (tensors.contains(key)) continue;
    std::string name = key;
    std::ranges::replace(name, '_', '-');
    run[name] = text_of(value.is_boolean() ? (value ? 1 : 0) : value.get<double>());
  }
}

void add_optimizer(Configuration& run, const TrainOptions& options) {
  run["optimizer"] = name_of(options.optimizer);
  run["weight-decay"] = text_of(options.weight_decay);
  const bool adam =
      options.optimizer == OptimizerKind::adamw || options.optimizer == OptimizerKind::lamb;
  if (adam) {
    run["beta1"] = text_of(options.beta1);
    run["beta2"] = text_of(options.beta2);
  } else {
    run["momentum"] = text_of(options.momentum);
  }
  const LearningRateSchedule& schedule = options.schedule;
  run["lr"] = text_of(schedule.peak);
  run["lr-schedule"] = name_of(schedule.decay);
  run["warmup"] = std::to_string(schedule.warmup_steps);
  if (schedule.decay != LearningRateSchedule::Decay::constant) {
    run["final-fraction"] = text_of(schedule.final_fraction);
    run[kSamples] = std::to_string(options.samples);
  }
  run["clip"] = text_of(options.replica.clip.value_or(0));
}

void add_numbers(Configuration& run, const TrainOptions& options) {
  const ReplicaOptions& replica = options.replica;
  run["precision"] = name(replica.storage.dtype);
  run["stochastic-rounding"] = replica.stochastic_rounding ? "yes" : "no";
  if (replica.loss_scaling) {
    const LossScalerOptions& scaling = *replica.loss_scaling;
    run["loss-scale"] = cat(text_of(scaling.initial_scale), " x ", text_of(scaling.growth), " / ",
                            text_of(scaling.backoff), " after ", scaling.growth_interval, ", ",
                            scaling.hysteresis, ", from ", text_of(scaling.smallest_scale));
  } else {
    run["loss-scale"] = "none";
  }
  run["compression"] = name_of(options.compression);
  if (options.compression == Compression::powersgd) {
    run["compression-rank"] = std::to_string(options.compression_rank);
  }
}

// Pipelines whose weights are late train another way than all others, which are the same.
void add_pipeline(RunConfiguration& all, const TrainOptions& options) {
  const std::string& schedule = options.replica.pipeline.schedule;
  const bool late = pipeline::schedule_named(schedule).updates != pipeline::Updates::flushed;
  Configuration& timing = late ? all.run : all.layout;
  timing["flush-every"] = std::to_string(options.flush_every);
  timing["validate-every"] = std::to_string(options.validate_every);
  timing["checkpoint-every"] = std::to_string(options.checkpoint_every);
  all.run["late-weights"] = late ? schedule : "none";
  all.layout["schedule"] = schedule;
  all.layout["virtual"] = std::to_string(options.replica.pipeline.virtual_stages);
  std::string& cut = all.layout["cut"];
  for (const int first : options.replica.pipeline.cut) cut += cat(cut.empty() ? "" : ",", first);
  if (options.measure_cut) cut += "measured";
}

void add_layout(Configuration& layout, const TrainOptions& options) {
  const ReplicaOptions& replica = options.replica;
  const StorageOptions& storage = replica.storage;
  layout["zero"] = std::to_string(storage.stage);
  layout["bucket-mb"] =
      cat(storage.bucket_elements, " elements, the first ", storage.first_bucket_elements);
  layout["no-overlap"] = replica.data_parallel.overlap ? "no" : "yes";
  layout["allow-unused"] = replica.data_parallel.allow_unused ? "yes" : "no";
  layout["recompute"] = replica.runner.checkpoint_units ? "full" : "none or selective";
  layout["validation-samples"] = std::to_string(options.validation_samples);
  layout["steps"] = cat(options.samples, " samples");
  layout["checkpoint"] = options.checkpoint;
  layout["keep"] = std::to_string(options.keep);
  layout["resume"] = !options.resume ? "no" : cat("from step ", options.resume_step.value_or(-1));
  if (options.resume_or_new) layout["resume"] += " or anew";
  layout["overwrite"] = options.overwrite ? "yes" : "no";
  layout["initial"] = options.initial;
  layout["trace"] = options.trace.empty() ? "no" : "yes";
  layout["stops on request"] = options.stop_requested ? "yes" : "no";
  layout["seed of values"] = cat(replica.seed, " and ", replica.runner.seed);
  for (const std::string& name : options.allow_changed) layout["allow-changed"] += name + ",";
}

std::string to_text(const RunConfiguration& configuration) {
  std::string text;
  for (const Configuration* part : {&configuration.run, &configuration.layout}) {
    for (const auto& [name, value] : *part) text += cat(name, '=', value, '\0');
  }
  return text;
}

Configuration settings_in(const std::string& text) {
  Configuration settings;
  for (const std::string& word : split(text, '\0')) {
    const size_t equals = word.find('=');
    settings[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return settings;
}

struct Difference {
  std::string name;
  std::string before;
  std::string now;
};

// Settings that only one has follow from others: beta1 from the optimizer.
std::vector<Difference> differences(const Configuration& before, const Configuration& now) {
  std::vector<Difference> found;
  for (const auto& [name, value] : before) {
    const auto other = now.find(name);
    if (other != now.end() && other->second != value) found.push_back({name, value, other->second});
  }
  return found;
}

std::string in_words(const std::string& value) { return value.empty() ? "nothing" : value; }

// Of each rank that has other settings than the first; some, where there are many.
std::string describe_ranks(const Communicator& communicator,
                           const std::vector<std::string>& texts) {
  constexpr int kMost = 8;
  const Configuration first = settings_in(texts.front());
  std::string text;
  int others = 0;
  for (int rank = 1; rank < static_cast<int>(texts.size()); ++rank) {
    const Configuration own = settings_in(texts[static_cast<size_t>(rank)]);
    const std::vector<Difference> found = differences(first, own);
    if (own == first || ++others > kMost) continue;
    text += cat(text.empty() ? "" : "; ", communicator.describe(rank), " has");
    const char* comma = " ";
    for (const Difference& one : found) {
      text += cat(comma, one.name, ' ', in_words(one.now), " (rank 0: ", in_words(one.before), ')');
      comma = ", ";
    }
    if (found.empty()) text += " other settings";
  }
  if (others > kMost) text += cat("; and so on: ", others, " ranks differ from rank 0");
  return text;
}

void check_may_change(const std::string& name, const Configuration& saved,
                      const Configuration& now) {
  const bool fixed = std::ranges::find(kFixed, name) != kFixed.end();
  if (!fixed && (now.contains(name) || saved.contains(name))) return;
  std::string names;
  for (const auto& [known, value] : now) {
    if (std::ranges::find(kFixed, known) == kFixed.end()) {
      names += cat(names.empty() ? "" : ", ", known);
    }
  }
  throw Error(ErrorCode::invalid_argument,
              fixed ? cat("the ", name, " cannot change in a run")
                    : cat("there is no setting \"", name, "\" of a run"),
              {.where = "--allow-changed",
               .remedy = fixed ? "start a new run from the checkpoint's export, with --initial"
                               : cat("give some of ", names)});
}

}  // namespace

RunConfiguration configuration_of(const Model& model, const std::vector<const DataSet*>& data,
                                  const TrainOptions& options) {
  RunConfiguration all;
  Configuration& run = all.run;
  add_model(run, model.configuration());
  run["data"] = describe(data);
  std::string& weights = run["data-weights"];
  for (const double weight : options.data_weights) {
    weights += cat(weights.empty() ? "" : ",", text_of(weight));
  }
  run["batch"] = std::to_string(options.batch);
  run["micro-batch"] = std::to_string(options.micro_batch);
  run["seed"] = std::to_string(options.seed);
  add_optimizer(run, options);
  add_numbers(run, options);
  add_pipeline(all, options);
  add_layout(all.layout, options);
  return all;
}

uint64_t hash_of(const RunConfiguration& configuration) {
  const std::string text = to_text(configuration);
  return std::strtoull(checksum_of(std::as_bytes(std::span(text))).c_str(), nullptr, 16);
}

void check_same_everywhere(Communicator& communicator, const RunConfiguration& configuration) {
  const uint64_t hash = hash_of(configuration);
  // The maximum of the complements is the complement of the minimum.
  std::array<uint64_t, 2> bounds = {hash, ~hash};
  communicator.all_reduce(std::span<uint64_t>(bounds), ReduceOp::max);
  if (bounds[0] == ~bounds[1]) return;
  const std::vector<std::string> texts = gather_texts(communicator, to_text(configuration));
  const std::string who = text_of_first(
      communicator, communicator.rank() == 0 ? describe_ranks(communicator, texts) : "");
  throw_on_all(communicator, Error(ErrorCode::mismatch, "the ranks do not train the same model",
                                   {.where = who,
                                    .cause = "their data or training options differ",
                                    .remedy = "give every rank the same files and the same "
                                              "options"}));
}

std::vector<std::string> check_resumed(const Configuration& stored, const Configuration& now,
                                       const std::vector<std::string>& allowed,
                                       const std::string& where) {
  Configuration saved = stored;
  if (saved.contains("model")) saved["model"] = model_text(completed_model(saved["model"]));
  for (const std::string& name : allowed) check_may_change(name, saved, now);
  std::vector<std::string> passed;
  std::string refused;
  std::string names;
  bool fixed = false;
  for (const Difference& one : differences(saved, now)) {
    const std::string text = cat(one.name, ": ", in_words(one.before), " in the checkpoint, ",
                                 in_words(one.now), " now");
    if (one.name == kSamples || std::ranges::find(allowed, one.name) != allowed.end()) {
      passed.push_back(text);
      continue;
    }
    refused += cat(refused.empty() ? "" : "; ", text);
    names += cat(names.empty() ? "" : ",", one.name);
    fixed = fixed || std::ranges::find(kFixed, one.name) != kFixed.end();
  }
  if (refused.empty()) return passed;
  throw Error(
      ErrorCode::invalid_argument, cat("this would not be the run that was saved: ", refused),
      {.where = where,
       .remedy =
           cat("give the options with which it was trained",
               fixed ? ", or start a new run in another directory"
                     : cat(", or say that they change on purpose: --allow-changed ", names))});
}

}  // namespace tutti::training
