#include "training/parallel/factor_layers.h"

#include <algorithm>

namespace tutti::training {
namespace {

// Returns true if the parameter is in `storage` and is the unsharded weight of only one dense
// layer.
bool has_factors(const ParameterTable& table, int parameter, const StorageOptions& storage) {
  const ParameterSpec& spec = table.specs()[static_cast<size_t>(parameter)];
  if (!spec.is_dense || !spec.placement.is_whole()) return false;
  const auto is_it = [&](const SharedUse& use) { return use.parameter == parameter; };
  if (std::ranges::any_of(table.shared_uses(), is_it)) return false;
  return !storage.parameters || std::ranges::count(*storage.parameters, parameter) > 0;
}

}  // namespace

std::vector<FactorTraffic> factor_layers(const Model& model, const FactorOptions& options,
                                         const StorageOptions& storage, int ranks) {
  std::vector<FactorTraffic> layers;
  if (options.layers == FactorLayers::none) return layers;
  const ParameterTable& table = model.parameters();
  const double share = static_cast<double>(ranks - 1) / ranks;
  const DType gradients = storage.one_pass ? storage.dtype : DType::f32;
  // an all-reduce sends twice as much as a reduce-scatter
  const int times = storage.stage == 0 ? 2 : 1;
  for (int parameter = 0; parameter < table.size(); ++parameter) {
    if (!has_factors(table, parameter, storage)) continue;
    const ParameterSpec& spec = table.specs()[static_cast<size_t>(parameter)];
    const Unit& unit = *model.units()[static_cast<size_t>(spec.unit)];
    // Each rank of a spatial grid has rows of all samples.
    const int64_t rows =
        options.samples * unit.output_shape().rows * table.mesh().size(Axis::spatial);
    const auto width = static_cast<double>(spec.shape[0] + spec.shape[1]);
    const FactorTraffic traffic{
        .parameter = parameter,
        .name = spec.name,
        .rows = rows,
        .factor_bytes =
            share * static_cast<double>(rows) * width * static_cast<double>(size_of(storage.dtype)),
        .gradient_bytes = times * share * static_cast<double>(spec.count()) *
                          static_cast<double>(size_of(gradients))};
    const bool saves = traffic.factor_bytes < traffic.gradient_bytes;
    if (saves || options.layers == FactorLayers::all) layers.push_back(traffic);
  }
  return layers;
}

std::vector<int> parameters_of(const std::vector<FactorTraffic>& layers) {
  std::vector<int> parameters;
  for (const FactorTraffic& layer : layers) parameters.push_back(layer.parameter);
  return parameters;
}

}  // namespace tutti::training
