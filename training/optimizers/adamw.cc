#include "training/optimizers/adamw.h"

#include "training/optimizers/blocks.h"

namespace tutti::training {

void check(const AdamWOptions& options) {
  check_moments(options.moments);
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
}

Json suited_adamw(const ModelTraits& model) {
  return {
      {"lr", model.adam_rate}, {"beta2", model.adam_beta2}, {"weight_decay", model.weight_decay}};
}

void describe_adamw(Schema& schema, AdamWOptions& options) {
  describe(schema, options.moments);
  schema.add("weight_decay", options.weight_decay, "decoupled weight decay of matrices");
}

AdamWStep::AdamWStep(const AdamWOptions& options, const StepOptions& step)
    : options_(options),
      factors_(moment_factors(options.moments, step)),
      rate_(static_cast<float>(step.learning_rate /
                               bias_correction(options.moments.beta1, step.step))),
      keep_(static_cast<float>(1 - step.learning_rate * options.weight_decay)) {}

void AdamWStep::update(const ParameterSpec& spec, float* w, const float* g, float* m, float* v,
                       int64_t count) const {
  const float keep = decays(spec, options_.decay_on) ? keep_ : 1;
  optimizer_loops::loops().adamw(w, g, m, v, count, factors_, keep, rate_);
}

AdamW::AdamW(const AdamWOptions& options) : options_(options) { check(options); }

void AdamW::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                   NormReducer& /*reducer*/) {
  const AdamWStep step(options_, options);
  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    step.update(*block.owned.spec, block.values.data(), block.gradients.data(), block.states[0],
                block.states[1], block.size());
  });
}

OptimizerKind adamw_kind() {
  return optimizer_kind<AdamW, AdamWOptions>("adamw", &suited_adamw, &describe_adamw);
}

}  // namespace tutti::training
