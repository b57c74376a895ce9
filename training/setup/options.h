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
  std::string fingerprint;  // of the data, as stored in a checkpoint's configuration
  MeshShape mesh;
  Json model = {{"kind", "mlp"}};  // settings of its kind (models/registry.h), all or some
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> micro_batches;
  std::optional<double> min_rate;
  BatchScaling rate_scaling = BatchScaling::none;
  BatchScaling decay_scaling = BatchScaling::none;  // of the weight decay
  std::optional<int64_t> base_batch;
  std::string recompute = "none";
  bool sequence_parallel = false;
  std::string mix;  // models/mix.h: letters, a file or kSearchedMix; once settled: letters
  bool overlaps_sums = true;
  ContextKind context_kind = ContextKind::automatic;
  bool partition_activations = false;
  int64_t loss_chunk = 0;  // 0: all tokens of a micro-batch
  double bucket_mib = 4;
  std::string resume;              // a step, kNewestStep or kNewestStepOrNone; empty: a new run
  std::optional<int64_t> threads;  // none: the rank's share of its host's processors
  TrainOptions training;

  // All settings that were given, by dotted names.
  Json given = Json::object();
  bool is_given(std::string_view key) const { return find_member(given, key) != nullptr; }
};

// All settings except those of models and optimizers.
void describe(Schema& schema, RunOptions& options);
// Applies a configuration. Throws Error(invalid_argument) that names the fault; `where` is the
// file.
void read_options(const Json& configuration, RunOptions& options, const std::string& where = {});
// All settings, once they are settled: reading them again yields the same run.
Json written(const RunOptions& options);

ModelContext model_context(const RunOptions& options, const MeshPlace& place = {},
                           const Statistics& statistics = {});

// Settings given by words, in order, and a file.
struct ToldOptions {
  std::string file;            // --config
  Json said = Json::object();  // by --set and options
};
// Adds --data ... to a command; `told` must outlive it.
void add_run_options(Command command, ToldOptions& told);
// Adds a subset, for other commands that build models: computation, --precision and --recompute.
void add_pass_options(Command command, ToldOptions& told);
// Reads the file (or `base`, without one), overridden by the words. Throws UsageError for settings
// that have no effect beside the others, and as read_options().
RunOptions options_of(const ToldOptions& told, const Json& base = Json::object());

// Parses options as on the command line ("--layers=2"), which override those of a configuration.
// Throws as options_of().
RunOptions parse_run_options(const std::vector<std::string>& words,
                             const Json& configuration = Json::object());

}  // namespace tutti::training
