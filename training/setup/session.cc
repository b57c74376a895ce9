#include "training/setup/session.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/setup/settle.h"
#include "training/setup/threads.h"

namespace tutti::training {
namespace {

RunOptions settled(RunOptions options, int ranks, uint64_t examples) {
  settle(options, ranks, examples);
  return options;
}

RunOptions with_threads(RunOptions options, Communicator& world) {
  options.training.replica.threads =
      options.threads ? static_cast<int>(*options.threads) : share_of_processors(world);
  return options;
}

}  // namespace

Session::Session(Communicator world, RunOptions options, std::shared_ptr<const LoadedData> data)
    : data_(std::move(data)),
      options_(with_threads(settled(std::move(options), world.size(), data_->examples()), world)),
      mesh_(std::move(world), options_.mesh),
      statistics_(mesh_.group(kBatchAxes)),
      tile_statistics_(mesh_.along(Axis::spatial)),
      model_(make_model(options_.model,
                        model_context(options_, mesh_.place(), {&statistics_, &tile_statistics_}))),
      trainer_(mesh_, *model_, data_->views(), options_.training) {
  if (mesh_.world().rank() != 0) return;
  if (options_.mesh.context > 1 && settings().get_bool("TUTTI_DETERMINISTIC")) {
    log(LogLevel::warning, cat("results are bitwise those of ", options_.mesh.context,
                               " context-parallel ranks, because the model's heads or its "
                               "optimizer's matrices cannot be sharded over ",
                               options_.mesh.context * options_.mesh.tensor, " ranks"));
  }
  log(LogLevel::info, "the run's configuration: " + options_.training.configuration.dump());
}

std::unique_ptr<Session> begin_session(Communicator world, const std::vector<std::string>& words,
                                       const Json& configuration) {
  RunOptions options;
  LoadedData data;
  std::optional<Error> error;
  try {
    options = parse_run_options(words, configuration);
    data = load_data(options);
    const RunOptions tried = settled(options, world.size(), data.examples());
    make_model(tried.model);
  } catch (const UsageError& wrong) {
    error.emplace(ErrorCode::invalid_argument, wrong.what());
  } catch (const Error& wrong) {
    error = wrong;
  }
  throw_any(world, error);
  return std::make_unique<Session>(std::move(world), std::move(options),
                                   std::make_shared<const LoadedData>(std::move(data)));
}

}  // namespace tutti::training
