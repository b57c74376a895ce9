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
#include "training/model.h"
#include "training/models/resnet.h"
#include "training/parallel/mesh.h"
#include "training/trainer.h"

namespace tutti::training {

// Empty: the model's own default.
struct ModelOptions {
  std::string kind = "mlp";
  std::optional<int64_t> context;
  std::optional<int64_t> layers;
  std::optional<int64_t> heads;
  std::optional<int64_t> width;
  std::optional<int64_t> hidden;
  std::optional<int64_t> embedding;
  std::optional<int64_t> vocabulary;
  std::string norm = "layer";
  std::string mlp = "gelu";
  std::string positions = "learned";
  bool untied = false;
  bool no_bias = false;
  double dropout = 0;
  std::vector<int64_t> blocks = {1, 1, 1};
  std::vector<int64_t> widths = {16, 32, 64};
  bool sync_batch_norm = false;
  ResNetConfig images;  // their sizes, as the data has them

  bool is_gpt() const { return kind == "gpt2"; }
  bool is_resnet() const { return kind == "resnet"; }
};

inline constexpr const char* kNewestStep = "newest";
inline constexpr const char* kNewestStepOrNone = "auto";

struct RunOptions {
  std::vector<std::string> data;
  std::string validation;
  MeshShape mesh;
  ModelOptions model;
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

// The options from words as on the command line: "--layers=2". Throws UsageError.
RunOptions parse_run_options(const std::vector<std::string>& words);

// --data ... on one command; values go to `options`, which outlives the command.
void add_run_options(Command command, RunOptions& options);
// Throws UsageError for an option that was given though the others leave nothing for it to say.
void refuse_what_is_ignored(const Command& command, const RunOptions& options);
void refuse_options_of_other_models(const Command& command, const ModelOptions& options);
// Parts of it, for other commands that make models: --model ..., and how they compute: --precision
// and --recompute.
void add_model_options(Command command, ModelOptions& options);
void add_pass_options(Command command, RunOptions& options);

}  // namespace tutti::training
