// Tests the check for non-finite values and the norm of a rank's own gradients, before they are
// summed over ranks.
#include "training/engine/gradient_probe.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "training/core/model.h"

namespace tutti::training {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Nothing : public Unit {
 public:
  // The second unit shares the parameter of the first one, as a tied head does.
  Nothing(ParameterTable& table, const Parameter** tied)
      : own_(table.add(*tied == nullptr ? "tied" : "own", {3}, {Initial::Kind::constant, 0})) {
    if (*tied == nullptr) {
      *tied = own_;
    } else {
      table.share(*tied);
    }
  }
  std::string name() const override { return "nothing"; }
  OutputShape output_shape() const override { return {}; }
  Tensor forward(Pass&, ConstTensor) override { return {}; }
  Tensor backward(Pass&, ConstTensor) override { return {}; }

 private:
  const Parameter* own_;
};

// Both units use parameter 0, which belongs to unit 0. Parameter 1 belongs to unit 1.
struct TwoUnits : Model {
  TwoUnits() {
    add_unit<Nothing>(&tied);
    add_unit<Nothing>(&tied);
  }
  const Parameter* tied = nullptr;
};

struct Counted : UnitHooks {
  void after_weights(int) override { ++calls; }
  int calls = 0;
};

class Probe : public ::testing::Test {
 protected:
  GradientProbe make(GradientProbe::Options options, int64_t passes) {
    GradientProbe probe(inner_, model_, options);
    probe.begin_step(std::array{passes, passes});
    return probe;
  }
  // Adds the gradients of a micro-batch, the last unit's first.
  void backward(GradientProbe& probe, float tied, float own) {
    gradient(1)[0] += own;
    probe.after_weights(1);
    gradient(0)[2] += tied;
    probe.after_weights(0);
  }
  std::span<float> gradient(int parameter) { return bound_.gradient(parameter).values<float>(); }

  TwoUnits model_;
  testing::BoundParameters bound_{model_.parameters(), DType::f32};
  Counted inner_;
};

TEST_F(Probe, MeasuresTheFirstMicroBatchAlone) {
  GradientProbe probe = make({.measures = true}, 2);
  backward(probe, 3, 4);
  EXPECT_EQ(probe.square(), 25);
  backward(probe, 100, 100);
  EXPECT_EQ(probe.square(), 25);
  EXPECT_FALSE(probe.broken());
  EXPECT_EQ(inner_.calls, 4);
  bound_.clear_gradients();
  probe.begin_step(std::array<int64_t, 2>{1, 1});
  backward(probe, 1, 2);
  EXPECT_EQ(probe.square(), 5);
}

TEST_F(Probe, NamesTheFirstUnitThatIsNotFinite) {
  for (const bool measures : {false, true}) {
    for (const int64_t passes : {1, 2, 3}) {
      bound_.clear_gradients();
      GradientProbe probe = make({.measures = measures}, passes);
      for (int64_t pass = 0; pass + 1 < passes; ++pass) backward(probe, 1, 1);
      EXPECT_FALSE(probe.broken());
      backward(probe, kInfinity, -kInfinity);
      EXPECT_EQ(probe.broken(), 1) << "backward comes to it first";
    }
  }
}

TEST_F(Probe, ChecksEachMicroBatchBeforeItsSum) {
  GradientProbe probe = make({.each_micro_batch = true}, 3);
  backward(probe, 1, 1);
  backward(probe, kInfinity, 1);
  bound_.clear_gradients();  // as after a sum over ranks, which takes the gradients away
  backward(probe, 1, 1);
  EXPECT_EQ(probe.broken(), 0);
}

// The squares of large values may overflow although the values are finite.
TEST_F(Probe, LargeValuesAreFinite) {
  GradientProbe probe = make({.measures = true}, 1);
  backward(probe, 1e30f, 1);
  EXPECT_FALSE(probe.broken());
}

TEST_F(Probe, UnitsOfOtherStagesDoNotCount) {
  GradientProbe probe = make({.measures = true}, 1);
  probe.begin_step(std::array<int64_t, 2>{0, 1});
  gradient(0)[0] = 2;
  gradient(1)[0] = kInfinity;
  probe.after_weights(1);
  EXPECT_EQ(probe.broken(), 1);
}

}  // namespace
}  // namespace tutti::training
