// What `tutti train` can be told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/tutti/command_line.h"
#include "training/data/data_set.h"
#include "training/model.h"
#include "training/models/resnet.h"
#include "training/parallel/mesh.h"
#include "training/trainer.h"

namespace tutti::tool {

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
  training::ResNetConfig images;  // their sizes, as the data has them
};

inline constexpr const char* kNewestStep = "newest";
inline constexpr const char* kNewestStepOrNone = "auto";

struct TrainCommand {
  std::vector<std::string> data;
  std::string validation;
  int ranks = 0;  // 0: one per allowed core, or as many as the launcher started
  training::MeshShape mesh;
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
  std::string resume;  // a step, kNewestStep or kNewestStepOrNone; empty: a new run
  std::string json;
  std::string plot;
  bool on_terminal = false;  // standard output ends on one, though through the launcher's pipe
  training::TrainOptions training;
};

// --data ... on one command; values go to `options`, which outlives the command.
void add_train_options(Command command, TrainCommand& options);
// Throws UsageError for an option that was given though the others leave nothing for it to say.
void refuse_what_is_ignored(const Command& command, const TrainCommand& options);
void refuse_options_of_other_models(const Command& command, const ModelOptions& options);
// Parts of it, for other commands that make models: --model ..., and how they compute: --precision
// and --recompute.
void add_model_options(Command command, ModelOptions& options);
void add_pass_options(Command command, TrainCommand& options);

}  // namespace tutti::tool
