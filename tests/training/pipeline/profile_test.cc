#include "training/pipeline/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/models/gpt.h"
#include "training/models/resnet.h"
#include "training/pipeline/profile_json.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// --- units that record their inputs ---

struct Call {
  OutputShape input;
  OutputShape gradient;
  int bound = 0;  // number of parameters that have memory during the call
  bool finite = true;
};

struct Log {
  const ParameterTable* table = nullptr;
  std::map<std::string, std::vector<Call>> forward;
  std::map<std::string, std::vector<Call>> backward;
};

class LoggingUnit : public Unit {
 public:
  LoggingUnit(ParameterTable& table, Log& log, std::string name, OutputShape shape,
              std::vector<int64_t> parameter, const Parameter* shared = nullptr)
      : table_(table), log_(log), name_(std::move(name)), shape_(shape) {
    if (!parameter.empty()) {
      parameter_ = table.add(name_ + ".weight", parameter, {Initial::Kind::normal, 1});
    }
    if (shared != nullptr) table.share(shared);
  }
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return shape_; }
  Tensor forward(Pass& pass, ConstTensor input) override {
    EXPECT_TRUE(pass.training);
    EXPECT_TRUE(pass.recomputing) << "running statistics stay as they are";
    log_.forward[name_].push_back(call(input, {}));
    work();  // takes far longer than backward
    return pass.arena.take(pass.dtype, pass.batch->samples * shape_.rows, shape_.cols);
  }
  Tensor backward(Pass& pass, ConstTensor gradient) override {
    log_.backward[name_].push_back(call({}, gradient));
    return {};
  }
  const Parameter* parameter() const { return parameter_; }

 private:
  static void work() {
    volatile uint64_t bits = 1;
    for (int i = 0; i < 100000; ++i) bits = bits * 3;
  }
  Call call(ConstTensor input, ConstTensor gradient) {
    Call call{{input.rows, input.cols}, {gradient.rows, gradient.cols}};
    for (int i = 0; i < table_.size(); ++i) {
      const Tensor value = table_.at(i).value;
      if (value.data == nullptr) continue;
      ++call.bound;
      call.finite =
          call.finite && all_finite(value).get() && all_finite(table_.at(i).gradient).get();
    }
    for (const ConstTensor tensor : {input, gradient}) {
      if (!tensor.empty()) call.finite = call.finite && all_finite(tensor).get();
    }
    return call;
  }

  ParameterTable& table_;
  Log& log_;
  std::string name_;
  OutputShape shape_;
  const Parameter* parameter_ = nullptr;
};

// The units are start -> three alike -> a wider one -> one with another input -> end. The last unit
// also uses the parameter of `start`.
class LoggedModel : public Model {
 public:
  LoggedModel() {
    add("start", {5, 4}, {7, 4});
    const Parameter* first = parameters_.size() == 1 ? &parameters_.at(0) : nullptr;
    for (const char* name : {"a", "b", "c"}) add(name, {5, 4}, {4, 4});
    add("wide", {5, 8}, {8, 4});
    add("after", {5, 4}, {4, 4});
    add("end", {5, 7}, {}, first);
  }
  double flops_per_sample() const override { return 0; }
  Json configuration() const override { return {{"kind", "logged"}}; }
  int64_t targets_per_sample() const override { return 5; }

  Log log;

 private:
  void add(const char* name, OutputShape shape, const std::vector<int64_t>& parameter,
           const Parameter* shared = nullptr) {
    add_unit<LoggingUnit>(log, name, shape, parameter, shared);
  }
};

std::vector<std::string> names(const std::map<std::string, std::vector<Call>>& calls) {
  std::vector<std::string> names;
  for (const auto& [name, list] : calls) names.push_back(name);
  return names;
}

TEST(Profile, RunsEachKindOfUnitAlone) {
  LoggedModel model;
  const MicroBatch batch{.samples = 3};
  const Profile profile = profile_model(model, batch, {}, 2);
  EXPECT_EQ(profile.model, "logged");
  EXPECT_EQ(profile.samples, 3);
  // b and c are like a. "after" has the parameters and output of a, but another input.
  EXPECT_THAT(names(model.log.forward), ElementsAre("a", "after", "end", "start", "wide"));
  EXPECT_EQ(names(model.log.backward), names(model.log.forward));
  const std::map<std::string, OutputShape> inputs = {
      {"start", {0, 0}}, {"a", {15, 4}}, {"wide", {15, 4}}, {"after", {15, 8}}, {"end", {15, 4}}};
  const std::map<std::string, OutputShape> gradients = {
      {"start", {15, 4}}, {"a", {15, 4}}, {"wide", {15, 8}}, {"after", {15, 4}}, {"end", {0, 0}}};
  for (const auto& [name, shape] : inputs) {
    SCOPED_TRACE(name);
    ASSERT_THAT(model.log.forward[name], SizeIs(3)) << "one that is not counted, and two";
    ASSERT_THAT(model.log.backward[name], SizeIs(3));
    for (const Call& call : model.log.forward[name]) {
      EXPECT_EQ(call.input.rows, shape.rows);
      EXPECT_EQ(call.input.cols, shape.cols);
      EXPECT_EQ(call.bound, 1) << "its own parameter and no other";
      EXPECT_TRUE(call.finite);
    }
    for (const Call& call : model.log.backward[name]) {
      EXPECT_EQ(call.gradient.rows, gradients.at(name).rows);
      EXPECT_EQ(call.gradient.cols, gradients.at(name).cols);
      EXPECT_TRUE(call.finite);
    }
  }
  for (int i = 0; i < model.parameters().size(); ++i) {
    EXPECT_EQ(model.parameters().at(i).value.data, nullptr) << i;
  }
}

TEST(Profile, CountsBytes) {
  LoggedModel model;
  const MicroBatch batch{.samples = 3};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    const Profile profile = profile_model(model, batch, {.dtype = dtype}, 1);
    std::vector<std::string> found;
    for (const Layer& layer : profile.layers) {
      EXPECT_GE(layer.forward, 0);
      EXPECT_GE(layer.backward, 0);
      found.push_back(
          cat(layer.name, ' ', layer.activation_bytes / size, ' ', layer.parameter_bytes / size));
    }
    EXPECT_THAT(found, ElementsAre("start 60 28", "a 60 16", "b 60 16", "c 60 16", "wide 120 32",
                                   "after 60 16", "end 105 28"))
        << "end shares start's parameter";
    EXPECT_EQ(profile.layers[1].forward, profile.layers[2].forward) << "one measurement for both";
    EXPECT_EQ(profile.layers[1].backward, profile.layers[3].backward);
  }
}

TEST(Profile, TakesALanguageModel) {
  Gpt model({.layers = 3, .heads = 2, .width = 16, .context = 8, .vocabulary = 32});
  const std::vector<int32_t> tokens(16, 31);
  const MicroBatch batch{.samples = 2, .tokens = tokens, .targets = tokens};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Profile profile = profile_model(model, batch, {.dtype = dtype}, 2);
    const auto size = static_cast<int64_t>(size_of(dtype));
    ASSERT_THAT(profile.layers, SizeIs(5));
    for (const Layer& layer : profile.layers) {
      EXPECT_GT(layer.forward, 0) << layer.name;
      EXPECT_GT(layer.backward, 0) << layer.name;
    }
    EXPECT_EQ(profile.layers[0].parameter_bytes, (32 + 8) * 16 * size);
    EXPECT_EQ(profile.layers[1].name, "h.0");
    EXPECT_EQ(profile.layers[1].activation_bytes, 2 * 8 * 16 * size);
    EXPECT_EQ(profile.layers[4].parameter_bytes, (32 + 2) * 16 * size) << "tied, and ln_f";
    EXPECT_EQ(profile.layers[1].forward, profile.layers[3].forward);
  }
}

TEST(Profile, BackwardIncludesTheRecomputedForward) {
  LoggedModel model;
  const MicroBatch batch{.samples = 3};
  const Profile profile = profile_model(model, batch, {.checkpoint_units = true}, 1);
  ASSERT_THAT(profile.layers, SizeIs(7));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_GE(profile.layers[i].backward, profile.layers[i].forward) << i;
  }
  EXPECT_LT(profile.layers[6].backward, profile.layers[6].forward) << "the last is not repeated";
}

TEST(Profile, LeavesRunningStatisticsAlone) {
  ResNet model({.height = 8, .width = 8, .classes = 3, .blocks = {1, 2}, .widths = {4, 8}});
  const std::vector<float> images(2 * 64, 0.5f);
  const std::vector<int32_t> targets = {0, 2};
  const MicroBatch batch{.samples = 2, .features = images, .targets = targets};
  std::vector<std::vector<float>> before;
  for (const NamedBuffer& buffer : model.buffers()) {
    before.emplace_back(buffer.values.begin(), buffer.values.end());
  }
  ASSERT_FALSE(before.empty());
  const Profile profile = profile_model(model, batch, {}, 2);
  EXPECT_THAT(profile.layers, SizeIs(5));
  EXPECT_EQ(profile.layers[0].activation_bytes, 2 * 8 * 8 * 4 * 4);
  for (size_t i = 0; i < before.size(); ++i) {
    const auto values = model.buffers()[i].values;
    EXPECT_TRUE(std::ranges::equal(values, before[i])) << model.buffers()[i].name;
  }
}

TEST(Profile, RefusesAModelThatCannotBeRun) {
  LoggedModel model;
  EXPECT_THROW(profile_model(model, {.samples = 0}), Error);
  EXPECT_THROW(profile_model(model, {.samples = 1}, {}, 0), Error);
}

// --- files ---

TEST(ProfileJson, ComesBackAsItWas) {
  const Profile profile{
      "a model", 8, {{"one", 0.1, 1.0 / 3, 12, 1LL << 40}, {"two", 0, 1e-9, 0, 0}}};
  const Profile read = profile_from_json(to_json(profile), "file");
  EXPECT_EQ(read.model, profile.model);
  EXPECT_EQ(read.samples, profile.samples);
  ASSERT_THAT(read.layers, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.layers[i].name, profile.layers[i].name);
    EXPECT_EQ(read.layers[i].forward, profile.layers[i].forward);
    EXPECT_EQ(read.layers[i].backward, profile.layers[i].backward);
    EXPECT_EQ(read.layers[i].activation_bytes, profile.layers[i].activation_bytes);
    EXPECT_EQ(read.layers[i].parameter_bytes, profile.layers[i].parameter_bytes);
  }
}

TEST(ProfileJson, RefusesOtherFiles) {
  const std::string good = to_json({"m", 8, {{"one", 1, 2, 3, 4}}});
  ASSERT_NO_THROW(profile_from_json(good, "file"));
  const auto without = [&](const std::string& part, const std::string& instead) {
    std::string text = good;
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return text.replace(at, part.size(), instead);
  };
  const auto expect_refused = [](const std::string& text, const std::string& said) {
    try {
      profile_from_json(text, "the/file");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("the/file"));
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  };
  expect_refused("", "parse");
  expect_refused(good.substr(0, good.size() / 2), "parse");
  expect_refused("[1]", "array");
  expect_refused(without("tutti-profile", "other"), "tutti-profile");
  expect_refused(without("\"version\": 1", "\"version\": 2"), "version");
  expect_refused(without("\"samples\": 8", "\"samples\": 0"), "samples");
  expect_refused(without("forward_s", "forward"), "forward_s");
  expect_refused(without("\"one\"", "1"), "string");
  expect_refused(without("\"layers\": [", "\"layers\": [1,"), "an object");
}

}  // namespace
}  // namespace tutti::training::pipeline
