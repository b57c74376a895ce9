// Chooses the dense layers whose weight gradients are sent as two factors. The gradient of an M x N
// weight is a sum of K outer products, one for each row of a step. If K is small, the K (M + N)
// values of the factors are fewer than the M N values of the product:
//
//   all-reduce     2 (P - 1) / P M N          values that each of P ranks sends in a step
//   factors        (P - 1) / P K (M + N)      with K rows of all ranks, which each rank multiplies
//
// Xie et al.: Lighter-communication distributed machine learning via sufficient factor
// broadcasting, 2016; Zhang et al.: Poseidon, USENIX ATC 2017.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/core/model.h"
#include "training/parallel/storage.h"

namespace tutti::training {

enum class FactorLayers : uint8_t {
  none,
  automatic,  // layers for which factors take fewer bytes
  all,        // all dense layers that support it
};

struct FactorOptions {
  FactorLayers layers = FactorLayers::none;
  int64_t samples = 0;  // number of samples per step, over all ranks
};

// The traffic of a weight gradient that is sent as its factors.
struct FactorTraffic {
  int parameter = 0;
  std::string name;
  int64_t rows = 0;  // number of rows per step, over all ranks
  // Bytes per step that a rank sends as factors, and that it would send to sum the gradient.
  double factor_bytes = 0;
  double gradient_bytes = 0;
};

// Returns the layers that `options` choose, in the order of the parameters. `storage`: only its
// parameters (nullopt: all), types and stage are used. `ranks`: number of ranks that sum gradients.
std::vector<FactorTraffic> factor_layers(const Model& model, const FactorOptions& options,
                                         const StorageOptions& storage, int ranks);
std::vector<int> parameters_of(const std::vector<FactorTraffic>& layers);

}  // namespace tutti::training
