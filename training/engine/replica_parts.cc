#include "training/engine/replica_parts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/parallel/averaging/averaging.h"
#include "training/parallel/averaging/value_row.h"
#include "training/parallel/hooks/sufficient_factors.h"
#include "training/parallel/same_products.h"

namespace tutti::training {

RunnerOptions runner_options(RunnerOptions options, ParameterStorage& storage, Mesh& mesh) {
  options.dtype = storage.options().dtype;
  options.mesh = &mesh;
  if (storage.options().offload.activations()) options.pager = storage.pager();
  return options;
}

pipeline::Plans make_plans(const Mesh& mesh, const PipelineOptions& options) {
  return {options.schedule, mesh.size(Axis::pipeline), options.virtual_stages};
}

pipeline::Placement place_model(pipeline::Plans& plans, Model& model, const ReplicaOptions& options,
                                const Mesh& mesh) {
  check_rounding(options);
  check_servers(options, mesh.world().size(), mesh.size(Axis::data) < mesh.world().size());
  check_cuts(model, mesh.place());
  check_experts(model, options);
  std::vector<int> cut = options.pipeline.cut;
  if (cut.empty()) cut = pipeline::estimated_cut(model, plans.chunks());
  const pipeline::Placement placement =
      make_placement(plans.layout(), model, cut, mesh.place(Axis::pipeline));
  check_schedule(options, placement);
  const bool shares_samples =
      mesh.place().ranks_along(kPartAxes) > 1 || mesh.size(Axis::expert) > 1;
  check_averages(options, shares_samples || sums_over_others(model, placement),
                 placement.has_shared_across, mesh.world().size() / mesh.size(Axis::data));
  return placement;
}

Communicator ranks_along(Mesh& mesh, AxisSet axes, const pipeline::Placement& placement) {
  if (placement.holders.size() == 1) return mesh.group(axes);
  std::vector<int> ranks;
  for (const int stage : placement.holders) {
    for (int rank = 0; rank < mesh.world().size(); ++rank) {
      if (mesh.place_of(rank, Axis::pipeline) != stage) continue;
      if (mesh.is_beside(rank, AxisSet::all().without(axes | AxisSet{Axis::pipeline}))) {
        ranks.push_back(rank);
      }
    }
  }
  return mesh.world().create(ranks);
}

ParameterGroups make_groups(Mesh& mesh, Model& model, const Communicator& batch,
                            const pipeline::Placement& placement) {
  GroupTable table = parameter_groups(model.parameters().specs(), placement.parameters);
  std::vector<Communicator> ranks;
  for (const AxisSet axes : table.axes) {
    ranks.push_back(axes == kBatchAxes ? batch : ranks_along(mesh, axes, placement));
  }
  return {std::move(ranks), std::move(table.group_of)};
}

AxisSet counting_axes(const Model& model, int zero_stage) {
  const AxisSet all = AxisSet::all().without({Axis::pipeline});
  if (zero_stage > 0) return all;
  return all.without(kBatchAxes) | model.parameters().mesh().experts;
}

StorageOptions storage_options(const ReplicaOptions& options, const pipeline::Placement& placement,
                               Model& model, const MeshPlace& place, const Optimizer& optimizer,
                               const std::vector<FactorTraffic>& factors) {
  StorageOptions storage = options.storage;
  storage.alignment = optimizer.alignment();
  storage.alone = parameters_of(factors);
  storage.parameters = placement.parameters;
  storage.copies = placement.copies;
  // If ranks along an axis have equal parts of a parameter, the first one counts it.
  for (const int parameter : placement.parameters) {
    const ParameterSpec& spec = model.parameters().specs()[static_cast<size_t>(parameter)];
    // Both calls throw for cuts that the optimizer does not support.
    optimizer.state_format(spec);
    optimizer.whole_states(spec, static_cast<int>(model.units().size()));
    const Placement& its = spec.placement;
    const AxisSet others = its.cut_over() | (storage.stage > 0 ? its.summed_over() : AxisSet());
    if (place.first_along(counting_axes(model, storage.stage).without(others))) continue;
    storage.copies.push_back(parameter);
  }
  storage.masters = !options.without_masters();
  // If several stages hold the same units, they reach the ends of buckets in different orders.
  const bool one_order = placement.holders.size() == 1;
  storage.one_pass = options.passes == 1 && one_order;
  storage.shard_sums = one_order && shards_sums(options);
  return storage;
}

namespace {

// Returns the options of DataParallel. Stages that hold the same units (Chimera) reach the end of a
// bucket at different entries of their tables, so backward must not wait for a bucket's sum, or for
// memory, before the last entry.
DataParallelOptions parallel_options(const ReplicaOptions& options,
                                     const pipeline::Placement& placement) {
  DataParallelOptions parallel = options.data_parallel;
  for (const auto& joined : placement.joined) parallel.joined.push_back(joined.parameter);
  const bool one_order = placement.holders.size() == 1;
  if (!one_order) parallel.overlap = true;
  parallel.sums_uses_separately =
      one_order && !parallel.allow_unused && settings().get_bool("TUTTI_DETERMINISTIC");
  return parallel;
}

}  // namespace

void check_products(const ReplicaOptions& options, const Optimizer& optimizer, Mesh& mesh) {
  if (options.factors.layers != FactorLayers::none) {
    check_same_products(mesh.world(), options.storage.dtype, "send gradients as factors",
                        "remove --factors");
  }
  if (optimizer.takes_matrices() && options.storage.stage == 0) {
    check_same_products(mesh.world(), DType::f32,
                        "compute the updates of whole matrices on every rank", "use ZeRO stage 1");
  }
}

namespace {

// Fragments are parts of a rank's row of values. Throws if the tensor ranks of a worker have rows
// of different lengths: copies of a parameter would then belong to different fragments on them.
void check_even_rows(ParameterStorage& storage, Mesh& mesh) {
  const bool even = same_on_all(mesh.along(Axis::tensor), cat(ValueRow(storage).size()));
  made_on_all(mesh.world(), [&] {
    if (even) return;
    throw Error(ErrorCode::invalid_argument,
                "fragments require tensor ranks that have equally many parameters",
                {.cause = "the number of heads or columns is not divisible by --tp",
                 .remedy = "use one fragment, or another --tp"});
  });
}

}  // namespace

std::unique_ptr<Synchronizer> make_synchronizer(Model& model, ParameterStorage& storage,
                                                const ReplicaOptions& options,
                                                const pipeline::Placement& placement, Mesh& mesh,
                                                const HookFactory& make_hook,
                                                const Optimizer& optimizer) {
  std::unique_ptr<CommunicationHook> hook;
  made_on_all(mesh.world(), [&] {
    if (make_hook) hook = make_hook(storage.layout());
    check_factors(options, model, placement, hook != nullptr);
    if (optimizer.takes_matrices() && options.storage.stage > 0) {
      require_one_group(storage.layout());
    }
  });
  if (!storage.options().alone.empty()) {
    hook = std::make_unique<SufficientFactors>(model.parameters(), storage.layout(),
                                               storage.options().alone, storage.options().dtype,
                                               storage.groups().ranks.front());
  } else if (hook != nullptr) {
    made_on_all(mesh.world(), [&] {
      check_compression(options, placement);
      check_scale(*hook, options);
    });
  }
  if (hook != nullptr && hook->decompresses_by_products()) {
    check_same_products(mesh.world(), DType::f32, "decompress gradients by matrix products",
                        "use another --compression");
  }
  const DataParallelOptions parallel = parallel_options(options, placement);
  if (options.synchronizer) return options.synchronizer(model, storage, parallel);
  if (options.sync.has_servers()) return std::make_unique<ParameterServer>(storage, options.sync);
  if (options.sync.has_own_values()) {
    SyncOptions sync = options.sync;
    sync.worker_stages = mesh.size(Axis::pipeline);
    sync.worker_tensor_ranks = mesh.size(Axis::tensor);
    if (sync.fragments > 1) check_even_rows(storage, mesh);
    return make_averaging(storage, sync, options.seed);
  }
  return made_on_all(mesh.world(), [&] {
    return std::make_unique<DataParallel>(model, storage, parallel, std::move(hook));
  });
}

}  // namespace tutti::training
