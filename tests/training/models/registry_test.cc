#include "training/models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "training/models/gpt.h"
#include "training/models/resnet.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ModelRegistryTest, ConfigurationsRecreateTheirModels) {
  for (const ModelKind& kind : model_kinds()) {
    SCOPED_TRACE(kind.name);
    const Json named = {{"kind", kind.name}};
    const std::unique_ptr<Model> model = make_model(named);
    const std::unique_ptr<Model> again = make_model(model->configuration());
    EXPECT_EQ(kind_of(model->configuration()).name, kind.name);
    EXPECT_EQ(again->configuration(), model->configuration());
    EXPECT_EQ(completed_model(model->configuration()), model->configuration());
    ASSERT_EQ(again->parameters().size(), model->parameters().size());
    for (int i = 0; i < model->parameters().size(); ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(again->parameters().specs()[at].shape, model->parameters().specs()[at].shape);
    }
  }
}

TEST(ModelRegistryTest, UsesTheGivenValues) {
  const auto model = make_model(Json::parse(
      R"({"kind": "gpt2", "layers": 2, "heads": 2, "width": 16, "mlp": "swiglu", "tied": false})"));
  const Json configuration = model->configuration();
  EXPECT_EQ(configuration.at("layers"), 2);
  EXPECT_EQ(configuration.at("mlp"), "swiglu");
  EXPECT_EQ(configuration.at("tied"), false);
  EXPECT_EQ(configuration.at("context"), GptConfig().context);
  EXPECT_EQ(configuration.at("hidden"), 64);
}

TEST(ModelRegistryTest, MistakesAreNamed) {
  EXPECT_THAT(refusal([] {
                make_model({{"kind", "gtp2"}});
              }),
              AllOf(HasSubstr("gtp2"), HasSubstr("did you mean gpt2?")));
  EXPECT_THAT(refusal([] { make_model(Json::object()); }), HasSubstr("kind"));
  EXPECT_THAT(refusal([] { make_model(Json::parse(R"({"kind": "gpt2", "layer": 2})")); }),
              AllOf(HasSubstr("model.layer"), HasSubstr("did you mean model.layers?")));
  EXPECT_THAT(refusal([] { make_model(Json::parse(R"({"kind": "gpt2", "layers": "2"})")); }),
              HasSubstr("model.layers: expected an integer"));
  EXPECT_THAT(refusal([] { make_model(Json::parse(R"({"kind": "gpt2", "layers": 99999999})")); }),
              HasSubstr("model.layers"));
  for (const char* kind : {"gpt2", "llama", "mlp"}) {
    EXPECT_THAT(refusal([&] {
                  make_model({{"kind", kind}, {"layers", 1000000}});
                }),
                AllOf(HasSubstr("model.layers"), HasSubstr("from 0 to 10000, not 1000000")));
  }
}

TEST(ModelRegistryTest, TrainingOptionsChangeNoTensors) {
  const Json without = Json::parse(R"({"kind": "gpt2", "dropout": 0})");
  const Json with = Json::parse(R"({"kind": "gpt2", "dropout": 0.5})");
  const Json wider = Json::parse(R"({"kind": "gpt2", "width": 64})");
  const auto tensors = [](const Json& model) { return tensors_of_model(completed_model(model)); };
  EXPECT_NE(completed_model(with), completed_model(without));
  EXPECT_EQ(tensors(with), tensors(without));
  EXPECT_NE(tensors(wider), tensors(without));
}

}  // namespace
}  // namespace tutti::training
