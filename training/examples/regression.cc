// A regression: predicts numbers (float targets) from a user-defined data set, with the Trainer's
// loop. The loop reshuffles batches in each epoch, schedules the learning rate, and validates; with
// options.checkpoint = "DIR" it also saves checkpoints.
//
//   c++ -std=c++20 -O2 regression.cc -o regression $(pkg-config --cflags --libs tutti-training)
//   tutti run -n 2 -- ./regression
#include <tutti/training/kernels/elementwise.h>
#include <tutti/training/modules/features.h>
#include <tutti/training/modules/linear.h>
#include <tutti/training/modules/slots.h>
#include <tutti/training/modules/squared_error.h>
#include <tutti/training/trainer.h>

#include <cmath>
#include <cstdio>

using namespace tutti::training;

constexpr int64_t kHidden = 64;

class Hidden : public Unit {
 public:
  explicit Hidden(ParameterTable& table) : linear_(table, "hidden", 1, kHidden, {.deviation = 1}) {}
  std::string name() const override { return "hidden"; }
  OutputShape output_shape() const override { return {.rows = 1, .cols = kHidden}; }

  Tensor forward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    saved.before = linear_.forward(pass, features_of(pass, 1), saved.linear);
    const Tensor output = pass.arena.take(pass.dtype, saved.before.rows, kHidden);
    gelu(saved.before, output);
    return output;
  }
  Tensor backward(Pass& pass, ConstTensor output_gradient) override {
    Saved& saved = saved_[pass.slot];
    const Tensor gradient = pass.arena.take(pass.dtype, saved.before.rows, kHidden);
    gelu_backward(saved.before, output_gradient, gradient);
    linear_.backward(pass, gradient, saved.linear);
    return {};
  }

 private:
  struct Saved {
    Linear::Saved linear;
    Tensor before;
  };
  Linear linear_;
  Slots<Saved> saved_;
};

// The last unit, which computes a loss (here SquaredError). To use another loss, set pass.loss in
// forward(), and begin backward() with pass.loss_scale times the derivative of the sum of the
// losses with respect to the predictions.
class Predict : public Unit {
 public:
  explicit Predict(ParameterTable& table)
      : linear_(table, "predict", kHidden, 2, {.deviation = 0.1}) {}
  std::string name() const override { return "predict"; }
  OutputShape output_shape() const override { return {.rows = 1, .cols = 2}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    return saved.error.forward(pass, linear_.forward(pass, input, saved.linear));
  }
  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    return linear_.backward(pass, saved.error.backward(pass), saved.linear);
  }

 private:
  struct Saved {
    Linear::Saved linear;
    SquaredError error;
  };
  Linear linear_;
  Slots<Saved> saved_;
};

struct Circle : Model {
  Circle() {
    add_unit<Hidden>();
    add_unit<Predict>();
  }
  int64_t targets_per_sample() const override { return 2; }
};

// The data set: angles from -pi to pi, with their cosines and sines. Every tenth one is held out.
class Angles : public DataSet {
 public:
  uint64_t size() const override { return 900; }
  uint64_t validation_size() const override { return 100; }
  void add(uint64_t example, uint64_t /*epoch*/, Batch& batch) const override {
    append(example / 9 * 10 + example % 9 + 1, batch);
  }
  void add_validation(uint64_t example, Batch& batch) const override {
    append(10 * example, batch);
  }
  uint64_t fingerprint() const override { return 1000; }

 private:
  static void append(uint64_t number, Batch& batch) {
    const float angle = (static_cast<float>(number) / 500 - 1) * 3.14159265f;
    ++batch.samples;
    batch.features.push_back(angle);
    batch.float_targets.push_back(std::cos(angle));
    batch.float_targets.push_back(std::sin(angle));
  }
};

int main() {
  tutti::Communicator world = tutti::Communicator::init();
  Circle model;
  const Angles angles;
  TrainOptions options{.samples = 600 * 60, .batch = 60, .micro_batch = 10};
  options.schedule.peak = 0.02;
  const TrainResult result = train(world, model, {&angles}, options, [&](const StepReport& report) {
    if (world.rank() == 0 && report.step % 200 == 0) {
      std::printf("step %llu: mean squared error %.5f\n",
                  static_cast<unsigned long long>(report.step), report.result.loss);
    }
  });
  std::printf("rank %d of %d: mean squared error %.5f on unseen inputs\n", world.rank(),
              world.size(), result.validation.loss);
}
