// What a run of training can be told: by `tutti train`, and by tutti.training.Run in Python. A
// configuration file, --set and options are faces of one value, which one parser reads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/core/schema.h"
#include "training/models/registry.h"
#include "training/parallel/mesh.h"
#include "training/run/train_options.h"
#include "training/setup/command_line.h"

namespace tutti::training {

inline constexpr const char* kNewestStep = "newest";
inline constexpr const char* kNewestStepOrNone = "auto";
inline constexpr const char* kSearchedMix = "auto";

// TrainOptions, and what they follow from (settle.h).
struct RunOptions {
  RunOptions();

  std::vector<std::string> data;
  std::string validation;
  std::string fingerprint;  // of the data, as a checkpoint's configuration tells it
  MeshShape mesh;
  Json model = {{"kind", "mlp"}};  // what its kind (models/registry.h) has, or less
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> micro_batches;
  std::optional<double> min_rate;
  BatchScaling rate_scaling = BatchScaling::none;
  BatchScaling decay_scaling = BatchScaling::none;  // of the weight decay
  std::optional<int64_t> base_batch;
  std::string recompute = "none";
  bool sequence_parallel = false;
  std::string mix;  // of layers (models/mix.h): letters, a file or kSearchedMix; settled: letters
  bool overlaps_sums = true;
  ContextKind context_kind = ContextKind::automatic;
  bool partition_activations = false;
  int64_t loss_chunk = 0;  // 0: all of a micro-batch's tokens
  double bucket_mib = 4;
  std::string resume;              // a step, kNewestStep or kNewestStepOrNone; empty: a new run
  std::optional<int64_t> threads;  // none: the rank's share of its host's processors
  TrainOptions training;

  // What was said, of all this, by dotted names.
  Json given = Json::object();
  bool is_given(std::string_view key) const { return find_member(given, key) != nullptr; }
};

// All settings but those of models and optimizers.
void describe(Schema& schema, RunOptions& options);
// Takes over what a configuration says. Throws Error(invalid_argument) that names what is wrong;
// `where` is the file.
void read_options(const Json& configuration, RunOptions& options, const std::string& where = {});
// All of them, once they are settled: read again, they make the same run.
Json written(const RunOptions& options);

ModelContext model_context(const RunOptions& options, const MeshPlace& place = {},
                           const Statistics& statistics = {});

// What words said, in their order, besides a file.
struct ToldOptions {
  std::string file;            // --config
  Json said = Json::object();  // by --set and options
};
// --data ... on one command; `told` outlives it.
void add_run_options(Command command, ToldOptions& told);
// Part of it, for other commands that make models: how they compute, --precision and --recompute.
void add_pass_options(Command command, ToldOptions& told);
// The file (or `base`, in place of one), and over it what was said. Throws UsageError for what
// says nothing beside the others, and as read_options().
RunOptions options_of(const ToldOptions& told, const Json& base = Json::object());

// The options from words as on the command line: "--layers=2", over those of a configuration.
// Throws as options_of().
RunOptions parse_run_options(const std::vector<std::string>& words,
                             const Json& configuration = Json::object());

}  // namespace tutti::training
