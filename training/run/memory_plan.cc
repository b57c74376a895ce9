#include "training/run/memory_plan.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "training/core/layout.h"
#include "training/optimizers/registry.h"
#include "training/pipeline/profile.h"

namespace tutti::training {
namespace {

using pipeline::Profile;
using pipeline::UnitMemory;

int64_t bytes_of(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

// As ModelRunner has them: what forward keeps lies in one arena, temporaries of backward (and of
// forwards that are done anew) in another. Validation has one unit's forward in the first at a
// time.
int64_t planned_activations(const Model& model, const Profile& profile, bool checkpoint_units) {
  const size_t units = model.units().size();
  const auto is_checkpointed = [&](size_t unit) {
    return checkpoint_units && unit + 1 < units && !model.units()[unit]->backward_needs_nothing();
  };
  int64_t kept = 0, most_kept = 0, temporary = 0, input = 0;
  for (size_t unit = 0; unit < units; ++unit) {
    const UnitMemory& memory = profile.memory[unit];
    const int64_t output = profile.layers[unit].activation_bytes;
    const int64_t gradient = unit + 1 == units ? 0 : output;
    most_kept = std::max(most_kept, std::exchange(input, output) + memory.forward);
    if (is_checkpointed(unit)) {
      kept += output;
      most_kept = std::max(most_kept, kept);
      const int64_t anew = std::max(memory.forward, memory.kept + memory.backward);
      temporary = std::max(temporary, gradient + anew);
    } else {
      most_kept = std::max(most_kept, kept + memory.forward);
      kept += memory.kept;
      temporary = std::max(temporary, gradient + memory.backward);
    }
  }
  return most_kept + temporary;
}

// Elements of whole buckets that are there for a while: of each size two at once.
int64_t planned_buckets(const Layout& layout) {
  std::map<int64_t, int64_t> counts;
  for (const Bucket& bucket : layout.buckets) ++counts[bucket.size];
  int64_t elements = 0;
  for (const auto& [size, count] : counts) elements += size * std::min<int64_t>(count, 2);
  return elements;
}

}  // namespace

MemoryReport planned_memory(Model& model, const MicroBatch& batch, const TrainOptions& options,
                            int ranks, int64_t passes) {
  const StorageOptions& storage = options.replica.storage;
  const std::vector<ParameterSpec>& specs = model.parameters().specs();
  const Layout layout = make_layout(specs, {.ranks = {storage.stage == 0 ? 1 : ranks},
                                            .bucket_elements = storage.bucket_elements,
                                            .first_bucket_elements = storage.first_bucket_elements,
                                            .bucket_per_unit = storage.stage == 3,
                                            .parameters = {},
                                            .groups = {}});
  int64_t used = 0, owned = 0;
  for (const Slot& slot : layout.slots) used += slot.count;
  for (const Piece& piece : layout.pieces({0})) owned += piece.count;

  MemoryReport report;
  const auto add = [&](int64_t& kind, bool whole, DType dtype) {
    kind += (whole ? used : owned) * bytes_of(dtype);
    report.storage.padding +=
        (whole ? layout.size - used : layout.owned_size - owned) * bytes_of(dtype);
  };
  const bool one_pass = passes == 1;
  const bool masters = storage.dtype != DType::f32 && !options.replica.stochastic_rounding;
  const DType gradients = one_pass ? storage.dtype : DType::f32;
  add(report.storage.parameters, storage.stage < 3, storage.dtype);
  const bool whole_gradients = storage.stage < 2 || !(one_pass || shards_sums(options.replica));
  add(report.storage.gradients, whole_gradients, gradients);
  if (masters) add(report.storage.masters, false, DType::f32);
  // In deterministic mode the second use of a tied parameter is summed apart.
  const bool apart = !one_pass && settings().get_bool("TUTTI_DETERMINISTIC");
  for (const SharedUse& use : model.parameters().shared_uses()) {
    const ParameterSpec& spec = specs[static_cast<size_t>(use.parameter)];
    if (apart) report.storage.gradients += spec.local_count() * bytes_of(gradients);
  }
  if (storage.stage == 3)
    report.storage.gathered += planned_buckets(layout) * bytes_of(storage.dtype);
  if (!whole_gradients) {
    report.storage.gathered += planned_buckets(layout) * bytes_of(gradients);
  }
  const auto states = static_cast<int64_t>(make_optimizer(options.optimizer)->state_names().size());
  report.optimizer = states * owned * bytes_of(DType::f32);
  if (options.async_checkpoint) {
    const DType values = options.replica.stochastic_rounding ? storage.dtype : DType::f32;
    report.copies = report.optimizer + owned * bytes_of(values);
    if (options.replica.average_every > 0) report.copies *= 2;  // and those of the rank's own
  }
  const RunnerOptions runner{.dtype = storage.dtype,
                             .checkpoint_units = options.replica.runner.checkpoint_units,
                             .seed = options.seed};
  const Profile profile = pipeline::profile_model(model, batch, runner, 1);
  report.activations = planned_activations(model, profile, runner.checkpoint_units);
  return report;
}

int64_t total(const MemoryReport& memory) {
  return memory.storage.parameters + memory.storage.gradients + memory.storage.masters +
         memory.storage.padding + memory.storage.gathered + memory.optimizer + memory.activations +
         memory.boundaries + memory.compression + memory.copies;
}

}  // namespace tutti::training
