#include "training/optimizers/lars.h"

#include <cmath>

#include "training/optimizers/blocks.h"
#include "training/optimizers/layer_norms.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

Lars::Lars(const LarsOptions& options) : options_(options) {
  check_option(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum,
               "in [0, 1)");
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
  check_option(options.trust_coefficient > 0, "trust coefficient", options.trust_coefficient,
               "above 0");
}

void Lars::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                  NormReducer& reducer) {
  LayerNorms norms(options.parameters, pieces);
  read_blocks(pieces, {}, [&](const UpdateBlock& block) {
    if (!decays(*block.owned.spec, options_.decay_on)) return;
    norms.add(block.owned, block.values, block.gradients);
  });
  norms.reduce(reducer);

  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    const double decay = decays(*block.owned.spec, options_.decay_on) ? options_.weight_decay : 0;
    // Both norms are 0 for parameters without weight decay, because none of their parts was added.
    const double w = norms.of_values(block.owned.piece.parameter);
    const double g =
        norms.of_others(block.owned.piece.parameter) * std::abs(options.gradient_factor);
    const double local_rate =
        w == 0 || g == 0 ? 1 : options_.trust_coefficient * w / (g + decay * w);
    optimizer_loops::loops().lars(block.values.data(), block.gradients.data(), block.states[0],
                                  block.size(),
                                  {.gradient = static_cast<float>(options.gradient_factor),
                                   .decay = static_cast<float>(decay),
                                   .momentum = static_cast<float>(options_.momentum),
                                   .rate = static_cast<float>(options.learning_rate * local_rate)});
  });
}

OptimizerKind lars_kind() {
  return optimizer_kind<Lars, LarsOptions>(
      "lars",
      [](const ModelTraits&) -> Json {
        return {{"lr", 1.0}};
      },
      [](Schema& schema, LarsOptions& options) {
        schema.add("momentum", options.momentum, "momentum coefficient");
        schema.add("weight_decay", options.weight_decay, "weight decay of matrices");
        schema.add("trust_coefficient", options.trust_coefficient,
                   "trust coefficient of the layer-wise learning rate");
      });
}

}  // namespace tutti::training
