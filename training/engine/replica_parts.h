// The parts of a replica that follow from its options, its model and its place in the mesh.
#pragma once

#include <memory>
#include <vector>

#include "training/engine/replica.h"

namespace tutti::training {

// Returns the runner's options, completed by what the storage holds in files.
RunnerOptions runner_options(RunnerOptions options, ParameterStorage& storage, Mesh& mesh);

// Returns the plans of the schedule for the mesh's pipeline stages.
pipeline::Plans make_plans(const Mesh& mesh, const PipelineOptions& options);

// Returns the units and parameters of this rank. Throws Error(invalid_argument) for options that
// exclude each other.
pipeline::Placement place_model(pipeline::Plans& plans, Model& model, const ReplicaOptions& options,
                                const Mesh& mesh);

// Collective. Returns the ranks with the same units: those along `axes`, on each of the stages that
// hold the units.
Communicator ranks_along(Mesh& mesh, AxisSet axes, const pipeline::Placement& placement);

// Collective. Returns the parameters' groups by the ranks over which gradients are summed; `batch`
// is the group of those along the batch's axes.
ParameterGroups make_groups(Mesh& mesh, Model& model, const Communicator& batch,
                            const pipeline::Placement& placement);

// Returns the axes over which norms are summed within a stage. In ZeRO stage 0 each rank along the
// other axes of the batch computes the whole norm itself.
AxisSet counting_axes(const Model& model, int zero_stage);

// Returns the storage's options, completed for this rank. Throws Error for parameters whose cuts
// the optimizer does not support.
StorageOptions storage_options(const ReplicaOptions& options, const pipeline::Placement& placement,
                               Model& model, const MeshPlace& place, const Optimizer& optimizer,
                               const std::vector<FactorTraffic>& factors);

// Collective. Checks that ranks which each compute a result get the same bits, if the results must
// be equal. Throws Error otherwise.
void check_products(const ReplicaOptions& options, const Optimizer& optimizer, Mesh& mesh);

// Collective. Returns what makes the ranks' values or gradients equal.
std::unique_ptr<Synchronizer> make_synchronizer(Model& model, ParameterStorage& storage,
                                                const ReplicaOptions& options,
                                                const pipeline::Placement& placement, Mesh& mesh,
                                                const HookFactory& make_hook,
                                                const Optimizer& optimizer);

}  // namespace tutti::training
