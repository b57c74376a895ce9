// Tests Muon against NumPy (tests/training/fixtures/make_muon_fixture.py), and the assignment of
// matrices to owners.
#include "training/optimizers/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "training/checkpoint/safetensors.h"
#include "training/optimizers/whole_matrices.h"

namespace tutti::training {
namespace {

constexpr const char* kFile = "tests/training/fixtures/muon_tiny.safetensors";
constexpr int64_t kSteps = 4;

class Fixture {
 public:
  std::vector<double> read(const std::string& name) const {
    const StoredTensor& tensor = *file_.find(name);
    std::vector<double> values(static_cast<size_t>(tensor.info.count()));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  std::vector<int64_t> shape(const std::string& name) const { return file_.find(name)->info.shape; }

 private:
  SafetensorsFile file_{kFile};
};

TEST(MuonTest, TakesTheStepsOfTheReference) {
  const Fixture fixture;
  const std::vector<std::string> names = {"wide", "tall", "square", "filters", "bias"};
  std::vector<ParameterSpec> specs;
  std::vector<std::vector<float>> values;
  for (const std::string& name : names) {
    const std::vector<double> start = fixture.read(name);
    values.emplace_back(start.begin(), start.end());
    specs.push_back(
        {.name = name, .shape = fixture.shape(name), .unit = 1, .decays = name != "bias"});
  }
  Muon muon({.weight_decay = 0.1});
  const Layout layout = make_layout(specs, {});
  std::vector<std::vector<float>> memory(
      2, std::vector<float>(static_cast<size_t>(layout.owned_size)));
  const std::vector<std::span<float>> states(memory.begin(), memory.end());
  std::vector<std::vector<float>> gradients(names.size());
  NormReducer alone;
  for (int64_t step = 1; step <= kSteps; ++step) {
    std::vector<OwnedPiece> pieces;
    for (const Piece& piece : layout.pieces({0})) {
      const auto i = static_cast<size_t>(piece.parameter);
      const std::vector<double> all = fixture.read("grad." + names[i]);
      const auto start = all.begin() + (step - 1) * piece.count;
      gradients[i].assign(start, start + piece.count);
      pieces.push_back({piece,
                        &specs[i],
                        values[i],
                        tensor_at(gradients[i].data(), DType::f32, 1, piece.count),
                        {}});
    }
    muon.step(pieces, states, {.step = step, .learning_rate = 0.02, .parameters = 5, .units = 3},
              alone);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::vector<double> expected = fixture.read("muon." + names[i]);
      for (size_t j = 0; j < values[i].size(); ++j) {
        const double value = expected[static_cast<size_t>(step - 1) * values[i].size() + j];
        ASSERT_NEAR(values[i][j], value, 1e-6 * (1 + std::abs(value)))
            << names[i] << '[' << j << "] at step " << step;
      }
    }
  }
}

TEST(MuonTest, UsesAdamForTheFirstAndTheLastUnit) {
  const std::vector<ParameterSpec> specs = {{.name = "embedding", .shape = {4, 8}, .unit = 0},
                                            {.name = "hidden", .shape = {4, 8}, .unit = 1},
                                            {.name = "head", .shape = {4, 8}, .unit = 2}};
  std::vector<std::vector<float>> values(3, std::vector<float>(32));
  std::vector<float> gradient(32);
  std::iota(gradient.begin(), gradient.end(), 1.0F);
  const Layout layout = make_layout(specs, {});
  std::vector<std::vector<float>> memory(
      2, std::vector<float>(static_cast<size_t>(layout.owned_size)));
  const std::vector<std::span<float>> states(memory.begin(), memory.end());
  std::vector<OwnedPiece> pieces;
  for (const Piece& piece : layout.pieces({0})) {
    const auto i = static_cast<size_t>(piece.parameter);
    pieces.push_back(
        {piece, &specs[i], values[i], tensor_at(gradient.data(), DType::f32, 1, 32), {}});
  }
  NormReducer alone;
  Muon({.adam_scale = 0.5})
      .step(pieces, states, {.step = 1, .learning_rate = 0.02, .parameters = 3, .units = 3}, alone);
  // The first step of Adam is the learning rate, with the sign opposite to the gradient's.
  for (const float value : values[0]) EXPECT_NEAR(value, -0.01, 1e-6);
  EXPECT_EQ(values[2], values[0]);
  EXPECT_NE(values[1], values[0]);
}

TEST(MuonTest, BadOptionsAreRefused) {
  EXPECT_THROW(Muon({.momentum = 1}), Error);
  EXPECT_THROW(Muon({.iterations = 0}), Error);
  EXPECT_THROW(Muon({.weight_decay = -1}), Error);
  EXPECT_THROW(Muon({.adam_scale = -1}), Error);
}

TEST(WholeMatricesTest, RefusesAnOwnerWithPartOfAMatrixAndNoPeers) {
  const ParameterSpec spec{.name = "m", .shape = {4, 32}};
  OwnedPiece owned;
  owned.piece = {.parameter = 0, .first = 0, .count = 64};
  owned.spec = &spec;
  std::vector<float> values(64);
  EXPECT_THROW(compute_whole(
                   {&owned, 1}, [](const ParameterSpec&) { return true; }, values, nullptr,
                   [](int, const ParameterSpec&, std::span<float>) {}),
               Error);
}

}  // namespace
}  // namespace tutti::training
