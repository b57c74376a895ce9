// Tests language models whose matrices are quantized: they must compute with the dequantized
// values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "training/kernels/quantized_weights.h"
#include "training/models/registry.h"
#include "training/pipeline/runner.h"

namespace tutti::training {
namespace {

using testing::BoundParameters;

const Json kGpt2 = {{"kind", "gpt2"}, {"layers", 2},   {"heads", 2},
                    {"width", 48},    {"context", 24}, {"vocabulary", 50}};
const Json kLlama = {{"kind", "llama"}, {"layers", 2},   {"heads", 4},      {"kv_heads", 2},
                     {"width", 80},     {"context", 24}, {"vocabulary", 50}};
const Json kMixtral = {{"kind", "mixtral"}, {"layers", 1},   {"heads", 2},
                       {"width", 64},       {"context", 24}, {"vocabulary", 50}};

// A model whose matrices are quantized. They are kept as quantized blocks or, with `as_values`,
// converted back to floats.
class QuantizedModel {
 public:
  QuantizedModel(const Json& configuration, WeightFormat format, bool as_values)
      : model(make_model(configuration)), parameters(model->parameters(), DType::f32) {
    ParameterTable& table = model->parameters();
    for (int index = 0; index < table.size(); ++index) {
      if (!table.specs()[static_cast<size_t>(index)].is_quantizable) continue;
      names.push_back(table.specs()[static_cast<size_t>(index)].name);
      const Tensor value = parameters.value(index);
      const QuantizedMatrix matrix = quantize(format, value);
      if (as_values) {
        for (int64_t row = 0; row < value.rows; ++row) {
          dequantize_row(format, bytes_of(matrix, row), value.row_range(row, 1).values<float>());
        }
      } else {
        matrices_.push_back(matrix);
        table.set_value(index, {});
        table.set_quantized(index, &matrices_.back());
      }
    }
  }

  std::vector<double> logits() {
    const testing::TokenBatch batch(2, 24, 50);
    ModelRunner runner(*model, {});
    UnitHooks hooks;
    return testing::doubles(runner.predict({.samples = 2, .tokens = batch.tokens}, hooks));
  }

  std::unique_ptr<Model> model;
  BoundParameters parameters;
  std::vector<std::string> names;

 private:
  static std::span<const std::byte> bytes_of(const QuantizedMatrix& matrix, int64_t row) {
    return {matrix.row(row), static_cast<size_t>(bytes_of_row(matrix.format, matrix.cols))};
  }
  QuantizedMatrix quantize(WeightFormat format, ConstTensor value) {
    QuantizedMatrix matrix{format, nullptr, value.rows, value.cols};
    std::vector<std::byte>& bytes = bytes_.emplace_back(static_cast<size_t>(matrix.bytes()));
    matrix.data = bytes.data();
    const auto row_bytes = static_cast<size_t>(bytes_of_row(format, value.cols));
    for (int64_t row = 0; row < value.rows; ++row) {
      quantize_row(format, value.row_range(row, 1).values<float>(),
                   std::span(bytes).subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
    }
    return matrix;
  }

  std::deque<std::vector<std::byte>> bytes_;
  std::deque<QuantizedMatrix> matrices_;
};

TEST(QuantizedModels, HaveTheLogitsOfTheDequantizedValues) {
  for (const Json& configuration : {kGpt2, kLlama, kMixtral}) {
    const auto plain = std::make_unique<QuantizedModel>(configuration, WeightFormat::q8_0, true);
    for (const WeightFormat format : {WeightFormat::q8_0, WeightFormat::q4_0, WeightFormat::nf4}) {
      SCOPED_TRACE(configuration.dump());
      SCOPED_TRACE(name(format));
      QuantizedModel blocks(configuration, format, false), values(configuration, format, true);
      const std::vector<double> wanted = values.logits();
      EXPECT_LT(testing::relative_distance(blocks.logits(), wanted), 1e-6);
      if (format != WeightFormat::q8_0) {
        EXPECT_NE(plain->logits(), wanted);
      }
    }
  }
}

// Large matrices are quantized: the embedding and the matrices of layers. Routers, normalizations
// and positions are not.
// positions.
TEST(QuantizedModels, SelectsMatrices) {
  using ::testing::AllOf;
  using ::testing::Contains;
  using ::testing::Each;
  using ::testing::EndsWith;
  using ::testing::HasSubstr;
  using ::testing::Not;
  const QuantizedModel gpt2(kGpt2, WeightFormat::q8_0, true);
  EXPECT_EQ(gpt2.names.size(), 9u) << "the embedding, and 4 matrices of a block";
  EXPECT_THAT(gpt2.names, Each(AllOf(EndsWith(".weight"), Not(HasSubstr("wpe")))));
  const QuantizedModel mixtral(kMixtral, WeightFormat::q8_0, true);
  EXPECT_THAT(mixtral.names, Contains(HasSubstr("experts")));
  EXPECT_THAT(mixtral.names, Each(Not(HasSubstr(".gate.weight"))));
}

}  // namespace
}  // namespace tutti::training
