#include "training/parallel/factor_layers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "training/modules/linear.h"

namespace tutti::training {
namespace {

// A dense layer of `outputs` x `inputs` weights that has `rows` rows per sample. It is never run.
class Dense : public Unit {
 public:
  Dense(ParameterTable& table, const std::string& name, int64_t outputs, int64_t inputs,
        int64_t rows, const Parameter* tied = nullptr)
      : name_(name), rows_(rows) {
    if (tied != nullptr) {
      table.share(tied);
    } else {
      Linear(table, name, inputs, outputs);
    }
  }
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {rows_, 1}; }
  Tensor forward(Pass&, ConstTensor) override { return {}; }
  Tensor backward(Pass&, ConstTensor) override { return {}; }

 private:
  std::string name_;
  int64_t rows_;
};

class DenseModel : public Model {
 public:
  explicit DenseModel(const MeshPlace& place = {}) : Model(place) {
    add_unit<Dense>("square", 64, 64, 1);
    add_unit<Dense>("flat", 4, 256, 1);
    add_unit<Dense>("tokens", 64, 64, 16);
    add_unit<Dense>("tied", 64, 64, 1);
    add_unit<Dense>("again", 64, 64, 1, &parameters_.at(6));
  }
  double flops_per_sample() const override { return 0; }
  Json configuration() const override { return {{"kind", "dense"}}; }
  int64_t targets_per_sample() const override { return 1; }
};

std::vector<std::string> names(const std::vector<FactorTraffic>& layers) {
  std::vector<std::string> found;
  for (const FactorTraffic& layer : layers) found.push_back(layer.name);
  return found;
}

using Names = std::vector<std::string>;

// Factors of K samples have K (M + N) values, a sum 2 M N. Factors are smaller for 64 x 64 weights
// if K is below 64, and for 4 x 256 if K is below 7.9.
TEST(FactorLayers, CountedBytesDecide) {
  const DenseModel model;
  for (const int ranks : {2, 3, 8}) {
    const auto chosen = [&](int64_t samples) {
      return names(factor_layers(model, {FactorLayers::automatic, samples}, {}, ranks));
    };
    EXPECT_EQ(chosen(1), (Names{"square.weight", "flat.weight", "tokens.weight"}));
    EXPECT_EQ(chosen(3), (Names{"square.weight", "flat.weight", "tokens.weight"}));
    EXPECT_EQ(chosen(4), (Names{"square.weight", "flat.weight"})) << "64 rows: as many bytes";
    EXPECT_EQ(chosen(7), (Names{"square.weight", "flat.weight"}));
    EXPECT_EQ(chosen(8), (Names{"square.weight"}));
    EXPECT_EQ(chosen(63), (Names{"square.weight"}));
    EXPECT_EQ(chosen(64), Names{});
  }
}

TEST(FactorLayers, RequestsSelectAllThatHaveFactors) {
  const DenseModel model;
  EXPECT_EQ(names(factor_layers(model, {FactorLayers::all, 1000}, {}, 2)),
            (Names{"square.weight", "flat.weight", "tokens.weight"}));
  EXPECT_EQ(names(factor_layers(model, {FactorLayers::none, 1}, {}, 2)), Names{});
  EXPECT_EQ(names(factor_layers(model, {FactorLayers::all, 1}, {.parameters = {{2, 3}}}, 2)),
            (Names{"flat.weight"}))
      << "a pipeline stage's";
}

TEST(FactorLayers, OneRankHasNoneUnlessAllAreRequested) {
  const DenseModel model;
  EXPECT_EQ(names(factor_layers(model, {FactorLayers::automatic, 1}, {}, 1)), Names{});
  EXPECT_EQ(factor_layers(model, {FactorLayers::all, 1}, {}, 1).size(), 3u);
}

// ZeRO stage 1 gathers values anyway, so a gradient counts only once. Factors have the type of the
// activations, and sums of several micro-batches are in f32.
TEST(FactorLayers, CompareWithTheBytesThatTheyReplace) {
  const DenseModel model;
  const auto first = [&](const StorageOptions& storage) {
    return factor_layers(model, {FactorLayers::all, 10}, storage, 4).front();
  };
  const FactorTraffic plain = first({});
  EXPECT_EQ(plain.rows, 10);
  EXPECT_DOUBLE_EQ(plain.factor_bytes, 0.75 * 10 * 128 * 4);
  EXPECT_DOUBLE_EQ(plain.gradient_bytes, 2 * 0.75 * 64 * 64 * 4);
  EXPECT_DOUBLE_EQ(first({.stage = 1}).gradient_bytes, 0.75 * 64 * 64 * 4);
  const FactorTraffic sums = first({.dtype = DType::bf16});
  EXPECT_DOUBLE_EQ(sums.factor_bytes, 0.75 * 10 * 128 * 2);
  EXPECT_DOUBLE_EQ(sums.gradient_bytes, 2 * 0.75 * 64 * 64 * 4);
  EXPECT_DOUBLE_EQ(first({.dtype = DType::bf16, .one_pass = true}).gradient_bytes,
                   2 * 0.75 * 64 * 64 * 2);
}

// In a grid, each rank has rows of all samples, so that the rows of all ranks count.
TEST(FactorLayers, CountTheRowsOfAllRanksOfAGrid) {
  const DenseModel model(MeshPlace{.sizes = {1, 1, 4, 1, 1, 1}});
  EXPECT_EQ(factor_layers(model, {FactorLayers::all, 10}, {}, 4).front().rows, 40);
}

}  // namespace
}  // namespace tutti::training
