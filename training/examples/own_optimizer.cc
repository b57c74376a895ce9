// A user-defined optimizer: Lion (Chen et al.: Symbolic discovery of optimization algorithms,
// 2023), on a model of the library. Its state is sharded over the ranks (ZeRO stage 1), which needs
// no code in the optimizer.
//
//   FLAGS=$(pkg-config --cflags --libs tutti-training)
//   c++ -std=c++20 -O2 own_optimizer.cc -o own_optimizer $FLAGS
//   tutti run -n 2 -- ./own_optimizer
#include <tutti/training/engine/replica.h>
#include <tutti/training/models/mlp_model.h>
#include <tutti/training/optimizers/blocks.h>

#include <cstdio>
#include <random>

using namespace tutti::training;

class Lion : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {"momentum"}; }

 private:
  void update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
              NormReducer&) override {
    const auto rate = static_cast<float>(options.learning_rate);
    const auto factor = static_cast<float>(options.gradient_factor);
    update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
      float* const momentum = block.states[0];
      const float decay = block.owned.spec->decays ? 0.01f : 0;
      for (size_t i = 0; i < block.values.size(); ++i) {
        const float gradient = block.gradients[i] * factor;
        const float direction = 0.9f * momentum[i] + 0.1f * gradient;
        const float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
        block.values[i] -= rate * (sign + decay * block.values[i]);
        momentum[i] = 0.99f * momentum[i] + 0.01f * gradient;
      }
    });
  }
};

int main() {
  tutti::Communicator world = tutti::Communicator::init();
  constexpr int kKinds = 16, kSamples = 64;
  MlpModel model({.context = 2, .embedding = 16, .hidden = 64, .vocabulary = kKinds});
  ReplicaOptions options;
  options.storage.stage = 1;
  Replica replica(world, model, std::make_unique<Lion>(), options);
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::uniform_int_distribution<int32_t> numbers(0, kKinds - 1);
  StepResult result;
  for (int step = 1; step <= 400; ++step) {  // the model learns addition
    std::vector<int32_t> tokens(2 * kSamples), targets(kSamples);
    for (int32_t& token : tokens) token = numbers(random);
    for (size_t i = 0; i < targets.size(); ++i)
      targets[i] = (tokens[2 * i] + tokens[2 * i + 1]) % kKinds;
    const MicroBatch batch{.samples = kSamples, .tokens = tokens, .targets = targets};
    result = replica.step({.own = {&batch, 1}, .targets = kSamples * world.size()}, step, 0.002);
  }
  std::printf("rank %d of %d: loss %.4f, %.0f%% accuracy\n", world.rank(), world.size(),
              result.loss, 100 * result.correct);
}
