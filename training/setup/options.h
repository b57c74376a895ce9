// What a run of training can be told: the options of `tutti train`, and of tutti.training.Run in
// Python. Both are read by one parser.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "training/data/data_set.h"
#include "training/models/registry.h"
#include "training/parallel/mesh.h"
#include "training/trainer.h"

namespace tutti::training {

inline constexpr const char* kNewestStep = "newest";
inline constexpr const char* kNewestStepOrNone = "auto";

struct RunOptions {
  std::vector<std::string> data;
  std::string validation;
  MeshShape mesh;
  Json model = {{"kind", "mlp"}};  // what its kind (models/registry.h) has, or less
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> batch;
  std::optional<int64_t> micro_batch;
  std::optional<int64_t> micro_batches;
  std::optional<int64_t> validation_samples;
  std::string precision = "f32";
  std::string loss_scale = "dynamic";
  std::string optimizer = "adamw";
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<double> clip;
  std::string rate_schedule = "cosine";
  std::optional<int> virtual_stages;
  std::string cut = "estimated";
  std::string rate_scaling = "none";
  std::optional<int64_t> base_batch;
  std::string recompute = "none";
  std::string compression = "none";
  double bucket_mib = 4;
  bool no_overlap = false;
  std::string resume;          // a step, kNewestStep or kNewestStepOrNone; empty: a new run
  std::optional<int> threads;  // none: the rank's share of its host's processors
  TrainOptions training;
};

ModelContext model_context(const RunOptions& options, StatisticsReducer* statistics = nullptr);

// The options from words as on the command line: "--layers=2". Throws UsageError.
RunOptions parse_run_options(const std::vector<std::string>& words);

// --data ... on one command; values go to `options`, which outlives the command.
void add_run_options(Command command, RunOptions& options);
// Throws UsageError for an option that was given though the others leave nothing for it to say.
void refuse_what_is_ignored(const Command& command, const RunOptions& options);
// Part of it, for other commands that make models: how they compute, --precision and --recompute.
void add_pass_options(Command command, RunOptions& options);

}  // namespace tutti::training
