#include "training/modules/squared_error.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/training/support/gradient_check.h"
#include "training/modules/features.h"

namespace tutti::training::testing {
namespace {

TEST(SquaredErrorTest, SumsSquaresAndTheirDerivatives) {
  const std::vector<float> targets = {1, -2, 0.5f, 4};
  const MicroBatch batch{.samples = 2, .float_targets = targets};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    TestPass test;
    test.pass.batch = &batch;
    test.pass.dtype = dtype;
    test.pass.loss_scale = 0.25;
    HostTensor predictions(dtype, 2, 2);
    assign(predictions, std::vector<double>{1, 1, 1.5, 2});  // the errors are 0, 3, 1 and -2
    SquaredError error;
    error.forward(test.pass, predictions);
    EXPECT_EQ(test.pass.loss.get().sum, 14);
    EXPECT_EQ(doubles(error.backward(test.pass)), (std::vector<double>{0, 1.5, 0.5, -1}));
  }
}

TEST(SquaredErrorTest, PredictionsAreReturnedWithoutTargets) {
  const MicroBatch batch{.samples = 1};
  TestPass test;
  test.pass.batch = &batch;
  HostTensor predictions(DType::f32, 1, 2);
  assign(predictions, std::vector<double>{3, 4});
  SquaredError error;
  EXPECT_EQ(doubles(error.forward(test.pass, predictions)), (std::vector<double>{3, 4}));
  EXPECT_EQ(test.pass.loss.get().sum, 0);
}

TEST(SquaredErrorTest, RefusesAnotherNumberOfTargets) {
  const std::vector<float> targets = {1, 2, 3};
  const MicroBatch batch{.samples = 1, .float_targets = targets};
  TestPass test;
  test.pass.batch = &batch;
  HostTensor predictions(DType::f32, 1, 2);
  SquaredError error;
  EXPECT_THROW(error.forward(test.pass, predictions), Error);
}

TEST(FeaturesTest, FeaturesHaveTheTypeOfThePass) {
  const std::vector<float> features = {1, -2, 0.5f, 4, 0, 3};
  const MicroBatch batch{.samples = 2, .features = features};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    TestPass test;
    test.pass.batch = &batch;
    test.pass.dtype = dtype;
    const Tensor own = features_of(test.pass, 3);
    EXPECT_EQ(own.dtype, dtype);
    EXPECT_EQ(own.rows, 2);
    EXPECT_EQ(doubles(own), (std::vector<double>{1, -2, 0.5, 4, 0, 3}));
    EXPECT_THROW(features_of(test.pass, 2), Error);
  }
}

}  // namespace
}  // namespace tutti::training::testing
