#include "training/run/measured_cut.h"

#include "training/pipeline/partition.h"
#include "training/pipeline/profile.h"
#include "training/run/feed.h"

namespace tutti::training {

std::vector<int> measured_cut(Communicator world, Model& model,
                              const std::vector<const DataSet*>& data, const TrainOptions& options,
                              int chunks) {
  std::vector<double> costs(model.units().size());
  if (world.rank() == 0) {
    const Feed feed(data, {.batch = options.micro_batch,
                           .micro_batch = options.micro_batch,
                           .samples = options.micro_batch,
                           .seed = options.seed,
                           .workers = 0,
                           .weights = options.data_weights});
    const StepFeed first = feed.steps_from(0)->next().value();
    RunnerOptions runner = options.replica.runner;
    runner.dtype = options.replica.storage.dtype;
    const pipeline::Profile profile =
        pipeline::profile_model(model, first.own.front().view(), runner, 3);
    for (size_t unit = 0; unit < costs.size(); ++unit) {
      costs[unit] = profile.layers[unit].forward + profile.layers[unit].backward;
    }
  }
  world.broadcast(std::span<double>(costs), 0);
  return pipeline::balanced_cut(costs, chunks);
}

}  // namespace tutti::training
