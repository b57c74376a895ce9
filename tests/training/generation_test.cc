// Tests text generation with and without a cache of the keys and values of earlier tokens.
#include "training/language/generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/training/data/folder.h"
#include "tests/training/data/tiny_vocabulary.h"
#include "tests/training/support/bound_parameters.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

using testing::BoundParameters;

struct Writer {
  explicit Writer(Json configuration)
      : model(make_model(configuration)), parameters(model->parameters(), DType::f32, 0.3) {}

  std::vector<int32_t> write(const std::vector<int32_t>& prompt, const GenerationOptions& options) {
    std::vector<int32_t> tokens;
    generate(dynamic_cast<Decoder&>(*model), DType::f32, prompt, options,
             [&](int32_t token) { tokens.push_back(token); });
    return tokens;
  }

  std::unique_ptr<Model> model;
  BoundParameters parameters;
};

const Json kGpt2 = {{"kind", "gpt2"}, {"layers", 2},   {"heads", 2},
                    {"width", 16},    {"context", 24}, {"vocabulary", 40}};
const Json kLlama = {{"kind", "llama"}, {"layers", 2},   {"heads", 4},      {"kv_heads", 2},
                     {"width", 16},     {"context", 24}, {"vocabulary", 40}};
const Json kMistral = {{"kind", "llama"}, {"layers", 2},   {"heads", 4},       {"kv_heads", 2},
                       {"width", 16},     {"context", 24}, {"vocabulary", 40}, {"window", 6}};
const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5};

// The results are the same even when the context is full and half of it is dropped, and for a
// prompt that fills the context.
TEST(GenerationTest, TheCacheChangesNothing) {
  for (const Json& configuration : {kGpt2, kLlama, kMistral}) {
    Writer writer(configuration);
    for (const double temperature : {0.0, 1.0}) {
      for (const size_t length : {size_t{1}, size_t{5}, size_t{24}, size_t{30}}) {
        std::vector<int32_t> prompt;
        for (size_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(i * 7 % 40));
        GenerationOptions options{.tokens = 70, .temperature = temperature, .seed = 3};
        const std::vector<int32_t> cached = writer.write(prompt, options);
        options.cached = false;
        EXPECT_EQ(cached, writer.write(prompt, options)) << configuration.dump() << length;
        EXPECT_EQ(cached.size(), 70u);
      }
    }
  }
}

TEST(GenerationTest, ASeedGivesTheSameTokens) {
  Writer writer(kLlama);
  const std::vector<int32_t> first = writer.write(kPrompt, {.tokens = 30, .seed = 1});
  EXPECT_EQ(first, writer.write(kPrompt, {.tokens = 30, .seed = 1}));
  EXPECT_NE(first, writer.write(kPrompt, {.tokens = 30, .seed = 2}));
}

// Generates the first token after the prompt many times. Returns how often each token occurs.
std::map<int32_t, int> followers(Writer& writer, GenerationOptions options) {
  constexpr int kDraws = 400;
  std::map<int32_t, int> counts;
  options.tokens = 1;
  for (options.seed = 1; options.seed <= kDraws; ++options.seed) {
    ++counts[writer.write(kPrompt, options).front()];
  }
  return counts;
}

TEST(GenerationTest, TheNucleusIsTheSmallestThatReachesTopP) {
  Writer writer(kGpt2);
  const int32_t likeliest = writer.write(kPrompt, {.tokens = 1, .temperature = 0}).front();
  const std::map<int32_t, int> all = followers(writer, {});
  EXPECT_GT(all.size(), 10u);
  // Even if top_p is tiny, the most likely token remains.
  const std::map<int32_t, int> one = followers(writer, {.top_p = 1e-9});
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(one.begin()->first, likeliest);
  const std::map<int32_t, int> half = followers(writer, {.top_p = 0.5});
  EXPECT_GT(half.size(), 1u);
  EXPECT_LT(half.size(), all.size());
  EXPECT_TRUE(half.contains(likeliest));
  // top_k keeps the four most likely tokens, from which top_p selects.
  EXPECT_LE(followers(writer, {.top_k = 4, .top_p = 0.99}).size(), 4u);
  EXPECT_LT(followers(writer, {.top_k = 4, .top_p = 0.5}).size(), 4u);
}

TEST(GenerationTest, StopsBeforeTheTokenThatEndsTheText) {
  Writer writer(kGpt2);
  GenerationOptions options{.tokens = 30, .seed = 1};
  std::vector<int32_t> tokens = writer.write(kPrompt, options);
  options.ends = {tokens[20]};
  tokens.erase(std::ranges::find(tokens, options.ends.front()), tokens.end());
  EXPECT_EQ(writer.write(kPrompt, options), tokens);
}

using GenerationFiles = FolderTest;

TEST_F(GenerationFiles, ATextEndsWithItsTokenizersEndUnlessItIsIgnored) {
  const std::string end = "<|endoftext|>";
  Json vocabulary = tiny_vocabulary();
  vocabulary[end] = vocabulary.size();
  write("vocab.json", vocabulary.dump());
  write("merges.txt", kMerges);
  Json configuration = kGpt2;
  configuration["vocabulary"] = vocabulary.size();
  Writer writer(configuration);
  const auto text = [&](bool ignore_end) {
    std::string all;
    generate_text(dynamic_cast<Decoder&>(*writer.model), DType::f32, path(""), "hello",
                  {.tokens = 3000, .ignore_end = ignore_end},
                  [&](const std::string& more) { all += more; });
    return all;
  };
  const std::string whole = text(true);
  ASSERT_LT(whole.find(end) + end.size(), whole.size()) << "it goes on behind it";
  EXPECT_EQ(text(false), whole.substr(0, whole.find(end)));
}

TEST(GenerationTest, RefusesInvalidOptions) {
  Writer writer(kGpt2);
  EXPECT_THROW(writer.write({}, {}), Error);
  EXPECT_THROW(writer.write(kPrompt, {.tokens = -1}), Error);
  EXPECT_THROW(writer.write(kPrompt, {.temperature = -1}), Error);
  EXPECT_THROW(writer.write(kPrompt, {.top_k = -1}), Error);
  EXPECT_THROW(writer.write(kPrompt, {.top_p = 0}), Error);
  EXPECT_THROW(writer.write(kPrompt, {.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace tutti::training
