#include "training/optimizers/lamb.h"

#include <array>

#include "training/optimizers/blocks.h"
#include "training/optimizers/layer_norms.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

Lamb::Lamb(const LambOptions& options) : options_(options) {
  check_moments(options.moments);
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
}

// Makes two passes over memory: the second recomputes the direction instead of storing it.
void Lamb::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                  NormReducer& reducer) {
  const optimizer_loops::Loops& loops = optimizer_loops::loops();
  const optimizer_loops::MomentFactors factors = moment_factors(options_.moments, options);
  using Buffer = std::array<float, kUpdateBlock>;
  const auto direction = [&](const UpdateBlock& block, Buffer& buffer) {
    const bool decay = decays(*block.owned.spec, options_.decay_on);
    loops.lamb_direction(block.values.data(), block.states[0], block.states[1], buffer.data(),
                         block.size(), factors,
                         static_cast<float>(decay ? options_.weight_decay : 0));
    return std::span<const float>(buffer).first(block.values.size());
  };

  LayerNorms norms(options.parameters, pieces);
  read_blocks(pieces, states, [&](const UpdateBlock& block) {
    loops.moments(block.gradients.data(), block.states[0], block.states[1], block.size(), factors);
    if (!decays(*block.owned.spec, options_.decay_on)) return;
    Buffer buffer;
    norms.add(block.owned, block.values, direction(block, buffer));
  });
  norms.reduce(reducer);

  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    // Both norms are 0 for parameters without weight decay, because none of their parts was added.
    const double w = norms.of_values(block.owned.piece.parameter);
    const double u = norms.of_others(block.owned.piece.parameter);
    const double trust = w == 0 || u == 0 ? 1 : w / u;
    Buffer buffer;
    loops.descend(block.values.data(), direction(block, buffer).data(), block.size(),
                  static_cast<float>(options.learning_rate * trust));
  });
}

OptimizerKind lamb_kind() {
  return optimizer_kind<Lamb, LambOptions>(
      "lamb",
      [](const ModelTraits&) -> Json {
        return {{"lr", 0.01}, {"beta2", kShortRunBeta2}};
      },
      [](Schema& schema, LambOptions& options) {
        describe(schema, options.moments);
        schema.add("weight_decay", options.weight_decay, "weight decay of matrices");
      });
}

}  // namespace tutti::training
