// A user-defined model, trained on all ranks (DDP): each rank generates its own samples, and
// gradients are summed over ranks during backward. It learns whether two numbers have the same
// sign.
//
//   c++ -std=c++20 -O2 own_model.cc -o own_model $(pkg-config --cflags --libs tutti-training)
//   tutti run -n 2 -- ./own_model
#include <tutti/training/engine/replica.h>
#include <tutti/training/kernels/elementwise.h>
#include <tutti/training/modules/features.h>
#include <tutti/training/modules/linear.h>
#include <tutti/training/modules/loss.h>
#include <tutti/training/modules/slots.h>
#include <tutti/training/optimizers/adamw.h>

#include <cstdio>
#include <random>

using namespace tutti::training;

// The model: two numbers -> Linear -> ReLU -> Linear -> loss. Slots hold the state that backward
// needs, for each micro-batch in flight.
class Classify : public Unit {
 public:
  explicit Classify(ParameterTable& table)
      : hidden_(table, "hidden", 2, 32, {.deviation = 0.7}), head_(table, "head", 32, 2) {}
  std::string name() const override { return "classify"; }
  OutputShape output_shape() const override { return {.rows = 1, .cols = 2}; }

  Tensor forward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    saved.active = hidden_.forward(pass, features_of(pass, 2), saved.hidden);
    relu(saved.active, saved.active);
    return saved.loss.forward(pass, head_.forward(pass, saved.active, saved.head));
  }
  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient = head_.backward(pass, saved.loss.backward(pass), saved.head);
    relu_backward(saved.active, gradient, gradient);
    hidden_.backward(pass, gradient, saved.hidden);
    return {};
  }

 private:
  struct Saved {
    Linear::Saved hidden, head;
    Tensor active;
    LossPart loss;
  };
  Linear hidden_, head_;
  Slots<Saved> saved_;
};

struct SameSign : Model {
  SameSign() { add_unit<Classify>(); }
};

int main() {
  tutti::Communicator world = tutti::Communicator::init();
  SameSign model;
  Replica replica(world, model, std::make_unique<AdamW>(), {});
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::uniform_real_distribution<float> numbers(-1, 1);
  constexpr int kSamples = 64;
  StepResult result;
  for (int step = 1; step <= 200; ++step) {
    std::vector<float> features(2 * kSamples);
    std::vector<int32_t> targets(kSamples);
    for (float& number : features) number = numbers(random);
    for (size_t i = 0; i < targets.size(); ++i)
      targets[i] = features[2 * i] * features[2 * i + 1] > 0;
    const MicroBatch batch{.samples = kSamples, .features = features, .targets = targets};
    result = replica.step({.own = {&batch, 1}, .targets = kSamples * world.size()}, step, 0.01);
  }
  std::printf("rank %d of %d: loss %.4f, %.0f%% accuracy\n", world.rank(), world.size(),
              result.loss, 100 * result.correct);
}
