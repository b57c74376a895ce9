#include "training/optimizers/adamw.h"

#include "training/optimizers/blocks.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

AdamW::AdamW(const AdamWOptions& options) : options_(options) {
  check_moments(options.moments);
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of 0 or more");
}

void AdamW::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                   NormReducer& /*reducer*/) {
  const optimizer_loops::MomentFactors factors = moment_factors(options_.moments, options);
  const float rate = static_cast<float>(options.learning_rate /
                                        bias_correction(options_.moments.beta1, options.step));
  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    const bool decay = decays(*block.owned.spec, options_.decay_on);
    const double keep = decay ? 1 - options.learning_rate * options_.weight_decay : 1;
    optimizer_loops::loops().adamw(block.values.data(), block.gradients.data(), block.states[0],
                                   block.states[1], block.size(), factors, static_cast<float>(keep),
                                   rate);
  });
}

OptimizerKind adamw_kind() {
  return optimizer_kind<AdamW, AdamWOptions>(
      "adamw",
      [](const ModelTraits& model) -> Json {
        return {{"lr", model.adam_rate},
                {"beta2", kShortRunBeta2},
                {"weight_decay", model.weight_decay}};
      },
      [](Schema& schema, AdamWOptions& options) {
        describe(schema, options.moments);
        schema.add("weight_decay", options.weight_decay, "of matrices, decoupled");
      });
}

}  // namespace tutti::training
