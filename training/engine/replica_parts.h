// The parts of a replica that follow from its options, its model and its place in the mesh.
#pragma once

#include <memory>
#include <vector>

#include "training/engine/replica.h"

namespace tutti::training {

// Returns `options` with the mesh, the storage's data type and, if activations are offloaded, its
// pager.
RunnerOptions runner_options(RunnerOptions options, ParameterStorage& storage, Mesh& mesh);

// Returns the plans of the schedule for the mesh's pipeline stages.
pipeline::Plans make_plans(const Mesh& mesh, const PipelineOptions& options);

// Returns the units and parameters of this rank. Throws Error(invalid_argument) for options that
// exclude each other.
pipeline::Placement place_model(pipeline::Plans& plans, Model& model, const ReplicaOptions& options,
                                const Mesh& mesh);

// Collective. Returns a communicator of this rank and the ranks whose places differ from its own
// only along `axes`. If several pipeline stages hold this rank's units (Chimera), it includes such
// ranks of all these stages.
Communicator ranks_along(Mesh& mesh, AxisSet axes, const pipeline::Placement& placement);

// Collective. Groups the parameters by the ranks over which their gradients are summed. `batch`:
// the communicator of the ranks along the batch's axes.
ParameterGroups make_groups(Mesh& mesh, Model& model, const Communicator& batch,
                            const pipeline::Placement& placement);

// Returns the axes over which norms are summed within a pipeline stage. In ZeRO stage 0, ranks
// along the batch's axes have equal gradients (except of experts), so norms are not summed over
// these axes.
AxisSet counting_axes(const Model& model, int zero_stage);

// Returns the storage's options, completed for this rank. Throws Error for parameters whose cuts
// the optimizer does not support.
StorageOptions storage_options(const ReplicaOptions& options, const pipeline::Placement& placement,
                               Model& model, const MeshPlace& place, const Optimizer& optimizer,
                               const std::vector<FactorTraffic>& factors);

// Collective. If several ranks compute a result that must be equal on all of them, throws
// Error(unsupported) unless their products have the same bits.
void check_products(const ReplicaOptions& options, const Optimizer& optimizer, Mesh& mesh);

// Collective. Creates the synchronizer that the options determine. Throws Error(invalid_argument)
// for options that exclude each other.
std::unique_ptr<Synchronizer> make_synchronizer(Model& model, ParameterStorage& storage,
                                                const ReplicaOptions& options,
                                                const pipeline::Placement& placement, Mesh& mesh,
                                                const HookFactory& make_hook,
                                                const Optimizer& optimizer);

}  // namespace tutti::training
