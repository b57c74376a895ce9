// Tests numbers of parameters and operations against published counts and against our own models,
// and reads files of models.
#include "training/planner/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "training/models/registry.h"

namespace tutti::training::planner {
namespace {

using ::testing::HasSubstr;

TEST(ModelShape, HasThePublishedNumberOfParameters) {
  const auto count = [](const char* name) { return parameters(load_model_shape(name)); };
  EXPECT_EQ(count("gpt2"), 124'439'808);
  EXPECT_EQ(count("gpt2-xl"), 1'557'611'200);
  EXPECT_EQ(count("llama2-7b"), 6'738'415'616);
  EXPECT_EQ(count("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(count("llama3-70b"), 70'553'706'496);
  EXPECT_EQ(count("llama3-405b"), 405'853'388'800);
  EXPECT_EQ(count("mixtral-8x7b"), 46'702'792'704);
  EXPECT_NEAR(static_cast<double>(count("gpt3-175b")), 174.6e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(count("megatron-1008b")), 1008e9, 1e9);
  EXPECT_NEAR(static_cast<double>(count("deepseek-v3")), 671e9, 1e9);
  EXPECT_NEAR(static_cast<double>(count("qwen3-235b-a22b")), 235e9, 1e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(load_model_shape("qwen3-30b-a3b"))), 3e9,
              0.3e9);
}

// A sequence takes 72 s L h^2 (1 + s / 6h + V / 12 L h) operations.
TEST(ModelShape, HasTheOperationsOfTheFormula) {
  const ModelShape m = load_model_shape("megatron-145.6b");
  const double s = 2048, L = 80, h = 12288, V = 51200;
  const double formula = 72 * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h));
  EXPECT_NEAR(model_operations(m, 2048) / formula, 1, 1e-3) << "biases are counted, too";
}

class ModelFile : public ::testing::Test {
 protected:
  std::string write(const Json& json) {
    const auto path = std::filesystem::path(::testing::TempDir()) / "model.json";
    std::ofstream(path) << json.dump();
    return path.string();
  }
};

// The shapes used for planning must agree with the models that are trained.
TEST_F(ModelFile, AFileHasTheParametersOfItsModel) {
  for (const Json& model : {Json({{"kind", "gpt2"},
                                  {"layers", 3},
                                  {"width", 48},
                                  {"heads", 4},
                                  {"context", 32},
                                  {"vocabulary", 101}}),
                            Json({{"kind", "llama"},
                                  {"layers", 2},
                                  {"width", 32},
                                  {"heads", 4},
                                  {"kv_heads", 2},
                                  {"context", 16},
                                  {"vocabulary", 77}}),
                            Json({{"kind", "mixtral"},
                                  {"layers", 2},
                                  {"width", 32},
                                  {"heads", 4},
                                  {"experts", 4},
                                  {"context", 16},
                                  {"vocabulary", 77}})}) {
    const auto made = make_model(model, {});
    const Json complete = made->configuration();
    const ModelShape shape = load_model_shape(write({{"model", complete}}));
    int64_t all = 0;
    for (const ParameterSpec& parameter : made->parameters().specs()) all += parameter.count();
    EXPECT_EQ(parameters(shape), all) << complete.dump();
    EXPECT_NEAR(
        model_operations(shape, complete["context"].get<int64_t>()) / made->flops_per_sample(), 1,
        0.02)
        << complete.dump();
  }
}

TEST_F(ModelFile, HuggingFaceFilesAreRead) {
  const ModelShape llama = load_model_shape(write({{"model_type", "llama"},
                                                   {"hidden_size", 4096},
                                                   {"intermediate_size", 14336},
                                                   {"num_hidden_layers", 32},
                                                   {"num_attention_heads", 32},
                                                   {"num_key_value_heads", 8},
                                                   {"vocab_size", 128256},
                                                   {"tie_word_embeddings", false}}));
  EXPECT_EQ(parameters(llama), 8'030'261'248);
  const ModelShape gpt2 = load_model_shape(write({{"model_type", "gpt2"},
                                                  {"n_embd", 768},
                                                  {"n_layer", 12},
                                                  {"n_head", 12},
                                                  {"n_positions", 1024},
                                                  {"vocab_size", 50257}}));
  EXPECT_EQ(parameters(gpt2), 124'439'808);
}

std::string refusal(const std::string& name) {
  try {
    load_model_shape(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(ModelFile, NamesTheError) {
  EXPECT_THAT(refusal("llama3-80b"), HasSubstr("did you mean llama3-8"));
  EXPECT_THAT(refusal(write({{"model_type", "llama"}})), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal(write({{"num_hidden_layers", 0},
                             {"hidden_size", 8},
                             {"num_attention_heads", 2},
                             {"vocab_size", 9}})),
              HasSubstr("has 0 layers"));
  EXPECT_THAT(refusal(write({{"num_hidden_layers", 1'000'000},
                             {"hidden_size", 1'000'000'000},
                             {"num_attention_heads", 2},
                             {"vocab_size", 9}})),
              HasSubstr("more than 1e18"));
}

}  // namespace
}  // namespace tutti::training::planner
