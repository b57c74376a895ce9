#include "training/run/run_origin.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "training/checkpoint/initial.h"
#include "training/checkpoint/shared_verification.h"
#include "training/core/group.h"
#include "training/hugging_face/import.h"
#include "training/language/model_source.h"
#include "training/run/run_settings.h"
#include "training/run/snapshot.h"

namespace tutti::training {
namespace {

RunStart run_start(const TrainOptions& options) {
  return {.resume = options.resume,
          .or_new = options.resume_or_new,
          .step = options.resume_step,
          .overwrite = options.overwrite};
}

// Returns the history of the directory's writers, ending with these ranks.
WriterHistory writers(const TrainOptions& options, const Communicator& world) {
  if (!options.writers.writers.empty()) return options.writers;
  return {.writers = {writer_of(world, new_run_identity())}};
}

// Checks that the saved run may continue with this configuration. Returns warnings for the user.
std::vector<std::string> check_chosen(const ChosenStep& step, const RunConfiguration& now,
                                      const TrainOptions& options) {
  const Manifest& manifest = step.checkpoint.manifest();
  // an imported model has no settings of a run
  if (manifest.state.contains(kImportedFrom)) return {};
  if (manifest.configuration.empty()) {
    return {"the checkpoint has an earlier format, which does not contain the settings of the run"};
  }
  return check_resumed(manifest.configuration, now, options.allow_changed, step.checkpoint.path());
}

// Returns the folder of files that accompany the initial parameters; empty if there are none. A run
// that continues from memory does not need them, and they may no longer exist.
std::string companions_of_initial(const TrainOptions& options) {
  if (options.initial.empty()) return "";
  try {
    return open_model(options.initial).companions;
  } catch (const Error& error) {
    if (!options.kept) throw;
    log(LogLevel::warning, cat("the run has no tokenizer: ", error.what()));
    return "";
  }
}

}  // namespace

RunOrigin::RunOrigin(const Communicator& world, const TrainOptions& options,
                     const RunConfiguration& configuration)
    : world_(world),
      group_(group_of(world_)),
      options_(options),
      resumed_from_(open_directory(configuration)) {}

// Returns the folder of the resumed step, or "".
std::string RunOrigin::open_directory(const RunConfiguration& configuration) {
  if (options_.checkpoint.empty()) return "";
  SharedVerification verification(group_);
  const bool shares = options_.resume && group_.size > 1;
  if (shares && group_.rank != 0) verification.serve();
  return done_by_first(group_, "", [&]() -> std::string {
    const StepCheck check = [&](const Checkpoint& step) { verification.verify(step); };
    try {
      directory_.emplace(options_.checkpoint, run_start(options_), writers(options_, world_),
                         check);
    } catch (...) {
      if (shares) verification.finish();
      throw;
    }
    if (shares) verification.finish();
    if (!directory_->resumed()) return "";
    for (const std::string& text : check_chosen(*directory_->resumed(), configuration, options_)) {
      log(LogLevel::warning, cat("the run continues with changed settings: ", text));
    }
    return directory_->resumed()->checkpoint.path();
  });
}

// Returns the number of steps that were done when the state was saved.
uint64_t RunOrigin::done_in(const Json& state, uint64_t steps) const {
  const auto samples = state.value("samples", uint64_t{0});
  const auto batch = state.value("batch", options_.batch);
  const auto seed = state.value("seed", options_.seed);
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument,
                cat("the checkpoint was saved after ", samples, " samples in steps of ", batch,
                    ", with seed ", seed, "; ", what),
                {.where = resumed_from_, .remedy = remedy});
  };
  // The configuration, if there is one, contains the seed as well.
  const bool new_seed = std::ranges::any_of(options_.allow_changed, [](const std::string& name) {
    return short_name_of(name) == "seed";
  });
  if (batch != options_.batch || (seed != options_.seed && !new_seed)) {
    refuse(cat("this run has steps of ", options_.batch, ", with seed ", options_.seed),
           "use the batch and seed of the saved run");
  }
  if (samples > options_.samples) {
    refuse(cat("this run ends after ", options_.samples), "increase --steps or --epochs");
  }
  if (samples == options_.samples) return steps;
  if (samples % batch != 0) {
    refuse("the last step of the saved run was shorter, because the run ended there",
           "export the checkpoint and start a new run, or resume an earlier step");
  }
  return samples / batch;
}

RunOrigin::Begun RunOrigin::load(Replica& replica, Model& model, uint64_t steps) {
  Begun begun;
  if (options_.kept) {
    begun.state = load_kept(replica, *options_.kept);
    begun.done = done_in(begun.state, steps);
  } else if (!resumed_from_.empty()) {
    begun.state = load_snapshot(replica, model, Checkpoint::open_verified(resumed_from_));
    begun.done = done_in(begun.state, steps);
  } else if (!options_.initial.empty()) {
    const ModelSource initial = open_model(options_.initial);
    check_initial(model, *initial.values, options_.initial);
    load_parameters(replica, *initial.values, options_.initial);
  }
  if (options_.checkpoint.empty()) return begun;
  done_by_first(group_, "", [&] {
    directory_->begin();
    if (directory_->resumed()) return std::string();
    const std::string companions = companions_of_initial(options_);
    if (!companions.empty()) {
      hugging_face::copy_companions(companions, directory_->make_companions());
    }
    return std::string();
  });
  return begun;
}

Writer writer_of(const Communicator& world, const std::string& start) {
  const Membership members = world.membership();
  return {.start = start, .epoch = members.epoch, .digest = members.digest};
}

bool starts_over(const TrainOptions& options) {
  return !RunDirectory::resumes(options.checkpoint, run_start(options));
}

void check_directory(const Model& model, const std::vector<const DataSet*>& data,
                     const TrainOptions& options) {
  if (options.checkpoint.empty()) return;
  const auto step = RunDirectory::check(options.checkpoint, run_start(options));
  if (step) check_chosen(*step, configuration_of(model, data, options), options);
}

}  // namespace tutti::training
