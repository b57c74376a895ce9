// Tests 20 clients that jointly learn the ten digits of MNIST although each client has images of
// only two digits. The accuracy of each run is a property of the test (see --test_output or its
// XML).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/support/test_data.h"
#include "training/data/image_set.h"
#include "training/kernels/elementwise.h"
#include "training/modules/features.h"
#include "training/modules/linear.h"
#include "training/modules/loss.h"
#include "training/modules/slots.h"
#include "training/run/trainer.h"

namespace tutti::training {
namespace {

constexpr int kClients = 20;
constexpr int64_t kPixels = 28 * 28;
constexpr int64_t kHidden = 64;
constexpr int64_t kDigits = 10;

class HiddenUnit : public Unit {
 public:
  explicit HiddenUnit(ParameterTable& table)
      : linear_(table, "hidden", kPixels, kHidden,
                {.deviation = 1 / std::sqrt(static_cast<double>(kPixels))}) {}
  std::string name() const override { return "hidden"; }
  OutputShape output_shape() const override { return {1, kHidden}; }

  Tensor forward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    saved.before = linear_.forward(pass, features_of(pass, kPixels), saved.linear);
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

class DigitUnit : public Unit {
 public:
  explicit DigitUnit(ParameterTable& table)
      : linear_(table, "digit", kHidden, kDigits, {.deviation = 0.01}) {}
  std::string name() const override { return "digit"; }
  OutputShape output_shape() const override { return {1, kDigits}; }

  Tensor forward(Pass& pass, ConstTensor input) override {
    Saved& saved = saved_[pass.slot];
    return saved.loss.forward(pass, linear_.forward(pass, input, saved.linear));
  }
  Tensor backward(Pass& pass, ConstTensor) override {
    Saved& saved = saved_[pass.slot];
    return linear_.backward(pass, saved.loss.backward(pass), saved.linear);
  }

 private:
  struct Saved {
    Linear::Saved linear;
    LossPart loss;
  };
  Linear linear_;
  Slots<Saved> saved_;
};

// A model without batch normalization, because batch statistics differ between clients too much for
// an average of models.
struct Perceptron : Model {
  explicit Perceptron(const MeshPlace& place) : Model(place) {
    add_unit<HiddenUnit>();
    add_unit<DigitUnit>();
  }
  int64_t targets_per_sample() const override { return 1; }
};

class ImageClients : public ::testing::Test {
 protected:
  // Returns the accuracy on held-out images after each 100 steps and at the end.
  static std::vector<double> accuracies(const ImageSet& images, const std::string& way,
                                        int64_t labels, bool secure = false) {
    TrainOptions options;
    options.batch = 10 * kClients;
    options.micro_batch = 10;
    options.samples = 500 * options.batch;
    options.validate_every = 100;
    options.workers = 0;
    options.labels_per_client = labels;
    options.optimizer = {{"name", "sgd"}, {"momentum", 0.0}};
    options.schedule = {.decay = LearningRateSchedule::Decay::constant, .peak = 0.1};
    set_way(options.replica.sync, way);
    options.replica.sync.secure_sums = secure;
    options.replica.sync.outer_rate = 0.01;  // used by fedadam only
    std::vector<double> found;
    tutti::testing::run_ranks(kClients, [&](const Job& job) {
      const Mesh mesh(Communicator::init(job), {});
      Perceptron model(mesh.place());
      std::vector<double> own;
      const TrainResult result = train(mesh, model, {&images}, options, [&](const StepReport& at) {
        if (at.validation) own.push_back(at.validation->correct);
      });
      own.push_back(result.validation.correct);
      if (job.rank == 0) found = own;
    });
    std::string text;
    for (const double accuracy : found) text += cat(text.empty() ? "" : " ", accuracy);
    RecordProperty(cat(way, secure ? " secure" : "", " of ", labels), text);
    return found;
  }
};

TEST_F(ImageClients, ClientsWithTwoDigitsEachLearnAllTen) {
  const std::filesystem::path folder = tutti::testing::test_data("datasets/mnist");
  if (folder.empty()) GTEST_SKIP() << tutti::testing::kNoTestData;
  const ImageSet images(folder);
  const double in_one_place = accuracies(images, "allreduce", 0).back();
  EXPECT_GT(in_one_place, 0.88);
  const std::vector<double> federated = accuracies(images, "fedavg:5", 2);
  EXPECT_GT(federated.back(), in_one_place - 0.06);
  for (const char* way : {"fedavg:5,0.5", "fedprox:5,0.1", "fedadam:5"}) {
    EXPECT_GT(accuracies(images, way, 2).back(), in_one_place - 0.08) << way;
  }
  EXPECT_NEAR(accuracies(images, "fedavg:5", 2, true).back(), federated.back(), 0.001);
}

}  // namespace
}  // namespace tutti::training
