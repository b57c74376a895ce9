#include "training/setup/session.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/reduce_op.h"
#include "training/setup/settle.h"
#include "training/setup/threads.h"

namespace tutti::training {
namespace {

RunOptions settled(RunOptions options, int ranks, uint64_t examples) {
  settle(options, ranks, examples);
  return options;
}

// Collective: throws this rank's error, if it has one, else that of the first rank that has.
void agree(Communicator& world, const std::optional<Error>& error) {
  std::array<int32_t, 1> first = {error ? world.rank() : world.size()};
  world.all_reduce(std::span<int32_t>(first), ReduceOp::min);
  if (first[0] == world.size()) return;
  std::string text = error ? error->what() : "";
  std::array<int64_t, 2> head = {error ? static_cast<int64_t>(error->code()) : 0, std::ssize(text)};
  world.broadcast(std::span<int64_t>(head), first[0]);
  const bool own = world.rank() == first[0];
  std::vector<uint8_t> bytes(static_cast<size_t>(head[1]));
  if (own) std::ranges::copy(text, bytes.begin());
  world.broadcast(std::span<uint8_t>(bytes), first[0]);
  if (error) throw *error;
  text.assign(bytes.begin(), bytes.end());
  throw Error(static_cast<ErrorCode>(head[0]), text, {.where = world.describe(first[0])});
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
      statistics_(mesh_.along(Axis::data)),
      model_(make_model(options_.model, model_context(options_, &statistics_))),
      trainer_(mesh_, *model_, data_->views(), options_.training) {
  if (mesh_.world().rank() != 0) return;
  log(LogLevel::info, "the run's configuration: " + options_.training.told.dump());
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
  agree(world, error);
  return std::make_unique<Session>(std::move(world), std::move(options),
                                   std::make_shared<const LoadedData>(std::move(data)));
}

}  // namespace tutti::training
