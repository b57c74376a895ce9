// Settings of a training run, for `tutti train` and tutti.training.Run in Python. A configuration
// file, --set and options set the same value, through one parser.
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

// TrainOptions, and the settings from which they are derived (settle.h).
struct RunOptions {
  RunOptions();

  std::vector<std::string> data;
  std::string validation;
  std::string fingerprint;  // fingerprint of the data, as stored in a checkpoint's configuration
  MeshShape mesh;
  Json model = {{"kind", "mlp"}};  // some or all settings of its kind (models/registry.h)
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> micro_batches;
  std::optional<double> min_rate;
  BatchScaling rate_scaling = BatchScaling::none;
  // scaling of the weight decay with the batch size
  BatchScaling decay_scaling = BatchScaling::none;
  std::optional<int64_t> base_batch;
  std::string recompute = "none";
  bool sequence_parallel = false;
  std::string mix;  // models/mix.h: letters, a file or kSearchedMix; after settle(): letters
  bool overlaps_sums = true;
  ContextKind context_kind = ContextKind::automatic;
  bool partition_activations = false;
  int64_t loss_chunk = 0;  // number of tokens whose logits are computed at a time; 0: all tokens
  double bucket_mib = 4;
  std::string resume;  // a step to resume, kNewestStep or kNewestStepOrNone; empty: a new run
  // computing threads per rank; none: the rank's share of its host's processors
  std::optional<int64_t> threads;
  TrainOptions training;

  // All settings that the user gave, by dotted names.
  Json given = Json::object();
  bool is_given(std::string_view key) const { return find_member(given, key) != nullptr; }
};

// Adds all settings to `schema`, except those of models and optimizers.
void describe(Schema& schema, RunOptions& options);
// Applies a configuration to `options`. Throws Error(invalid_argument) for invalid settings.
// `where`: the file of the configuration, which errors name.
void read_options(const Json& configuration, RunOptions& options, const std::string& where = {});
// Returns all settings except those, such as --resume, that apply only to the start of a run.
// `options` must be settled. Reading the result again yields the same run.
Json written(const RunOptions& options);

ModelContext model_context(const RunOptions& options, const MeshPlace& place = {},
                           const Statistics& statistics = {});

// The settings that a user gave in a file and by options.
struct GivenOptions {
  std::string file;                // argument of --config
  Json settings = Json::object();  // settings given by --set and options
};
// Adds --data and all other settings as options to a command. `given_options` receives their values
// and must outlive it.
void add_run_options(Command command, GivenOptions& given_options);
// Adds only the options that determine how a model computes, --precision and --recompute, for other
// commands that build models.
void add_pass_options(Command command, GivenOptions& given_options);
// Returns the options: the settings of the file or, without a file, of `base`, overridden by
// given_options.settings. Throws UsageError (settings of the file: Error(invalid_argument)) for
// settings that have no effect together with the other settings, and as read_options() does.
RunOptions options_of(const GivenOptions& given_options, const Json& base = Json::object());

// Parses options as on the command line ("--layers=2"). The options override the settings of the
// given configuration. Throws as options_of() does.
RunOptions parse_run_options(const std::vector<std::string>& words,
                             const Json& configuration = Json::object());

}  // namespace tutti::training
