#include "training/run/trainer.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "training/run/configuration.h"
#include "training/run/measured_cut.h"
#include "training/run/stragglers.h"
#include "training/run/trainer_loop.h"

namespace tutti::training {
namespace {

void check_saving(const TrainOptions& options) {
  const char* const said = options.checkpoint_every > 0 ? "checkpoint_every"
                           : options.keep_best          ? "keep_best"
                           : options.async_checkpoint   ? "async_checkpoint"
                                                        : nullptr;
  if (said == nullptr || !options.checkpoint.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              cat(said, " has no effect without a checkpoint directory"),
              {.where = "TrainOptions", .remedy = "set `checkpoint`"});
}

}  // namespace

Trainer::Trainer(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                 const TrainOptions& options) {
  Communicator world = mesh.world();
  check_saving(options);
  check_clients(options);
  RunConfiguration configuration = configuration_of(model, data, options);
  check_same_everywhere(world, configuration);
  TrainOptions settled = options;
  const std::map<int, double> stragglers = stragglers_in(options.straggler);
  if (const auto slow = stragglers.find(world.rank()); slow != stragglers.end()) {
    settled.replica.slowdown = slow->second;
  }
  if (!stragglers.empty() && stragglers.rbegin()->first >= world.size() && world.rank() == 0) {
    log(LogLevel::warning, cat("rank ", stragglers.rbegin()->first,
                               " of --straggler is not one of the ", world.size(), " ranks"));
  }
  settled.replica.sync.run = digest_of_settings(configuration.run);
  if (options.measure_cut) {
    const auto& [schedule, virtual_stages, cut] = options.replica.pipeline;
    const int chunks =
        pipeline::Plans(schedule, mesh.size(Axis::pipeline), virtual_stages).chunks();
    settled.replica.pipeline.cut = measured_cut(world, model, data, options, chunks);
  }
  loop_ = std::make_unique<Loop>(mesh, model, data, settled, std::move(configuration));
}

Trainer::~Trainer() = default;

std::optional<StepReport> Trainer::next() { return loop_->next(); }
Evaluation Trainer::validate() { return loop_->validate(); }
void Trainer::save() { loop_->save(); }
TrainResult Trainer::finish() { return loop_->finish(); }
uint64_t Trainer::steps() const { return loop_->steps(); }
uint64_t Trainer::step() const { return loop_->step(); }
int Trainer::saves() const { return loop_->saves(); }
Replica& Trainer::replica() { return loop_->replica(); }

TrainResult train(const Mesh& mesh, Model& model, const std::vector<const DataSet*>& data,
                  const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step) {
  Trainer trainer(mesh, model, data, options);
  while (const std::optional<StepReport> report = trainer.next()) on_step(*report);
  return trainer.finish();
}

}  // namespace tutti::training
