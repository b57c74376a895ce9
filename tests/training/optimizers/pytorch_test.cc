// Tests six steps of every optimizer against PyTorch in float64.
// tests/training/fixtures/make_optimizer_fixture.py has the options and formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/optimizers/adamw.h"
#include "training/optimizers/lamb.h"
#include "training/optimizers/lars.h"
#include "training/optimizers/sgd.h"

namespace tutti::training {
namespace {

constexpr const char* kFile = "tests/training/fixtures/optimizers_tiny.safetensors";
constexpr int64_t kSteps = 6;
const std::vector<std::string> kNames = {"matrix", "vector"};

template <typename T>
std::vector<double> read_as(std::ifstream& file, size_t bytes) {
  std::vector<T> values(bytes / sizeof(T));
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  return {values.begin(), values.end()};
}

// Returns all tensors by name, each as a flat vector.
std::map<std::string, std::vector<double>> read_fixture() {
  std::ifstream file(kFile, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const auto data_start = file.tellg();
  std::map<std::string, std::vector<double>> tensors;
  const Json entries = Json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    file.seekg(data_start + static_cast<std::streamoff>(begin));
    tensors[name] = entry["dtype"] == "F64" ? read_as<double>(file, end - begin)
                                            : read_as<float>(file, end - begin);
  }
  if (!file) throw std::runtime_error(std::string("cannot read ") + kFile);
  return tensors;
}

struct Case {
  std::string name;
  double learning_rate;
  std::function<std::unique_ptr<Optimizer>()> make;
};

class PyTorchTest : public testing::TestWithParam<Case> {};

TEST_P(PyTorchTest, TakesTheSameSteps) {
  auto tensors = read_fixture();
  const std::unique_ptr<Optimizer> optimizer = GetParam().make();
  std::vector<std::vector<float>> values, gradients(kNames.size());
  std::vector<ParameterSpec> specs;
  for (const std::string& name : kNames) {
    values.emplace_back(tensors[name].begin(), tensors[name].end());
    specs.push_back({.name = name, .shape = {static_cast<int64_t>(values.back().size())}});
  }
  const Layout layout = make_layout(specs, {});
  std::vector<std::vector<float>> memory(
      optimizer->state_names().size(), std::vector<float>(static_cast<size_t>(layout.owned_size)));
  const std::vector<std::span<float>> states(memory.begin(), memory.end());
  NormReducer alone;
  for (int64_t step = 1; step <= kSteps; ++step) {
    std::vector<OwnedPiece> pieces;
    for (const Piece& piece : layout.pieces({0})) {
      const size_t i = static_cast<size_t>(piece.parameter);
      const auto start = tensors["grad." + kNames[i]].begin() + (step - 1) * piece.count;
      gradients[i].assign(start, start + piece.count);
      pieces.push_back({piece,
                        &specs[i],
                        values[i],
                        tensor_at(gradients[i].data(), DType::f32, 1, piece.count),
                        {}});
    }
    optimizer->step(pieces, states,
                    {.step = step, .learning_rate = GetParam().learning_rate, .parameters = 2},
                    alone);
    for (size_t i = 0; i < kNames.size(); ++i) {
      const std::vector<double>& expected = tensors[GetParam().name + "." + kNames[i]];
      const size_t count = values[i].size();
      for (size_t j = 0; j < count; ++j) {
        const double value = expected[static_cast<size_t>(step - 1) * count + j];
        ASSERT_NEAR(values[i][j], value, 5e-7 * (1 + std::abs(value)))
            << kNames[i] << "[" << j << "] at step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, PyTorchTest,
    testing::Values(Case{"sgd", 0.1,
                         [] { return std::make_unique<Sgd>(SgdOptions{.weight_decay = 0.01}); }},
                    Case{"sgd_nesterov", 0.1,
                         [] {
                           return std::make_unique<Sgd>(
                               SgdOptions{.weight_decay = 0.01, .nesterov = true});
                         }},
                    Case{"adamw", 0.05,
                         [] { return std::make_unique<AdamW>(AdamWOptions{.weight_decay = 0.1}); }},
                    Case{"lamb", 0.05, [] { return std::make_unique<Lamb>(); }},
                    Case{"lars", 0.5,
                         [] {
                           return std::make_unique<Lars>(
                               LarsOptions{.weight_decay = 0.01, .trust_coefficient = 0.02});
                         }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::training
