#include "training/optimizers/sgd.h"

#include "training/optimizers/blocks.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

Sgd::Sgd(const SgdOptions& options) : options_(options) {
  check_option(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum,
               "in [0, 1)");
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
}

std::vector<std::string> Sgd::state_names() const {
  if (options_.momentum == 0) return {};
  return {"momentum"};
}

void Sgd::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                 NormReducer& /*reducer*/) {
  const optimizer_loops::Loops& loops = optimizer_loops::loops();
  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    const bool decay = decays(*block.owned.spec, options_.decay_on);
    const optimizer_loops::SgdFactors factors{
        .gradient = static_cast<float>(options.gradient_factor),
        .decay = static_cast<float>(decay ? options_.weight_decay : 0),
        .momentum = static_cast<float>(options_.momentum),
        .rate = static_cast<float>(options.learning_rate),
        .nesterov = options_.nesterov};
    float* const w = block.values.data();
    const float* const g = block.gradients.data();
    if (options_.momentum == 0) {
      loops.sgd_plain(w, g, block.size(), factors);
    } else {
      loops.sgd(w, g, block.states[0], block.size(), factors);
    }
  });
}

OptimizerKind sgd_kind() {
  return optimizer_kind<Sgd, SgdOptions>(
      "sgd",
      [](const ModelTraits& model) -> Json {
        return {{"lr", model.sgd_rate}};
      },
      [](Schema& schema, SgdOptions& options) {
        schema.add("momentum", options.momentum, "momentum coefficient");
        schema.add("nesterov", options.nesterov, "use Nesterov momentum");
        schema.add("weight_decay", options.weight_decay, "weight decay of matrices");
      });
}

}  // namespace tutti::training
