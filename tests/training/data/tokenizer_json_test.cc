// The fixtures, made by make_tokenizer_fixtures.py, contain the results of Hugging Face's
// `tokenizers`.
#include "training/data/tokenizer_json.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <string>

#include "base/json.h"
#include "tests/training/data/folder.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizerJsonTest : public FolderTest {
 protected:
  TokenizerJsonTest() {
    std::ifstream file("tests/training/fixtures/tokenizers.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json fixture = Json::parse(line);
      const auto name = fixture["name"].get<std::string>();
      fixtures_[name] = std::move(fixture);
    }
  }
  Json described(const std::string& name) const { return fixtures_.at(name).at("tokenizer"); }
  BpeTokenizer made_of(const Json& description) const {
    return BpeTokenizer(read_tokenizer_json(write("tokenizer.json", description.dump())));
  }
  BpeTokenizer made(const std::string& name) const { return made_of(described(name)); }
  void expect_refused(const Json& description, const std::string& cause) const {
    EXPECT_THAT(error_of([&] { made_of(description); }),
                AllOf(HasSubstr(path("tokenizer.json")), HasSubstr(cause)));
  }

  std::map<std::string, Json> fixtures_;
};

TEST_F(TokenizerJsonTest, MakesTheTokensOfHuggingFace) {
  ASSERT_EQ(fixtures_.size(), 6u);
  for (const auto& [name, fixture] : fixtures_) {
    const BpeTokenizer tokenizer = made(name);
    EXPECT_GT(fixture.at("cases").size(), 40u);
    for (const Json& one : fixture.at("cases")) {
      const auto text = one.at(0).get<std::string>();
      EXPECT_EQ(tokenizer.encode(text), one.at(1).get<std::vector<int32_t>>())
          << name << ": " << text;
    }
  }
}

TEST_F(TokenizerJsonTest, NullEqualsAbsent) {
  for (const auto& [name, fixture] : fixtures_) {
    for (const char* part : {"model", "pre_tokenizer"}) {
      for (const char* key : {"fuse_unk", "ignore_merges", "byte_fallback", "add_prefix_space",
                              "use_regex", "split", "replacement", "prepend_scheme"}) {
        Json absent = described(name);
        if (!absent[part].is_object()) continue;
        absent[part].erase(key);
        Json null = absent;
        null[part][key] = nullptr;
        const auto outcome = [&](const Json& json) {
          std::vector<int32_t> tokens;
          std::string error = error_of([&] { tokens = made_of(json).encode("a word, 12 words"); });
          return std::pair(std::move(error), std::move(tokens));
        };
        EXPECT_EQ(outcome(null), outcome(absent)) << name << ": " << part << '.' << key;
      }
    }
  }
}

TEST_F(TokenizerJsonTest, SeparatePiecesGiveTheSameTokens) {
  for (const auto& [name, fixture] : fixtures_) {
    const BpeTokenizer tokenizer = made(name);
    std::vector<std::string> texts;
    for (const Json& one : fixture.at("cases")) texts.push_back(one.at(0).get<std::string>());
    std::vector<TextPiece> pieces;
    for (const std::string& text : texts) pieces.push_back({text});
    const std::vector<std::vector<int32_t>> all = tokenizer.encode(pieces);
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(all[i], tokenizer.encode(texts[i]));
  }
}

TEST_F(TokenizerJsonTest, TextsMayBeCut) {
  for (const auto& [name, fixture] : fixtures_) {
    const BpeTokenizer tokenizer = made(name);
    size_t cuts = 0;
    for (const Json& one : fixture.at("cases")) {
      const auto text = one.at(0).get<std::string>();
      for (size_t known = 0; known <= text.size(); ++known) {
        const size_t cut = tokenizer.last_cut(std::string_view(text).substr(0, known));
        if (cut == 0) continue;
        ++cuts;
        const std::vector<TextPiece> pieces = {{std::string_view(text).substr(0, cut)},
                                               {std::string_view(text).substr(cut), false}};
        std::vector<std::vector<int32_t>> parts = tokenizer.encode(pieces);
        parts[0].insert(parts[0].end(), parts[1].begin(), parts[1].end());
        ASSERT_EQ(parts[0], tokenizer.encode(text)) << name << ", at " << cut << ": " << text;
      }
    }
    EXPECT_GT(cuts, 100u) << name;
  }
}

// The bytes include invalid UTF-8, which Python's strings, and therefore the fixtures, cannot
// contain.
TEST_F(TokenizerJsonTest, BytesComeBack) {
  for (const std::string name : {"gpt2", "llama3", "digits", "metaspace"}) {
    const BpeTokenizer tokenizer = made(name);
    for (uint64_t i = 0; i < 500; ++i) {
      std::string text = "x";
      for (uint64_t j = 0; j < 30; ++j) {
        text.push_back(static_cast<char>(random_bits(1, i, j) % 256));
      }
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
    }
  }
}

TEST_F(TokenizerJsonTest, DecodesWhatItMade) {
  const BpeTokenizer tokenizer = made("llama2");
  const std::vector<int32_t> tokens = tokenizer.encode("the dog 日\n");
  EXPECT_EQ(tokenizer.decode(tokens), "the dog 日\n") << "without the blank that was put before";
  std::string text;
  for (const int32_t token : tokens) text += tokenizer.text_of(token);
  EXPECT_EQ(text, " the dog 日\n") << "inside a text it stays";
  EXPECT_THAT(error_of([&] { (void)tokenizer.text_of(1 << 20); }), HasSubstr("token 1048576"));
}

TEST_F(TokenizerJsonTest, KnowsTheEndOfText) {
  EXPECT_EQ(made("gpt2").end_of_text(), 0);
  EXPECT_EQ(made("llama3").end_of_text(), 1) << "<|end_of_text|>";
  EXPECT_EQ(made("llama2").end_of_text(), 2) << "</s>";
  EXPECT_EQ(made("llama3").find("<|eot_id|>"), 2);
  EXPECT_EQ(made("llama3").find("<absent>"), std::nullopt);
  write("tokenizer_config.json", R"({"eos_token": {"content": "<|eot_id|>"}})");
  EXPECT_EQ(made("llama3").end_of_text(), 2);
  write("tokenizer_config.json", R"({"eos_token": "<|begin_of_text|>"})");
  EXPECT_EQ(made("llama3").end_of_text(), 0);
  write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(made("llama3").end_of_text(), 1);
}

// `transformers` adds these special tokens before and after a text by default.
TEST_F(TokenizerJsonTest, FindsTheTokensAroundAText) {
  Json json = described("llama3");
  const auto frame = [&](const Json& post_processor) {
    json["post_processor"] = post_processor;
    return make_tokenizer(write("tokenizer.json", json.dump()))->frame();
  };
  const Json part = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto special = [](const char* name) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  const Json beginning = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({special("<a>"), part, special("<b>")})},
      {"special_tokens", {{"<a>", {{"ids", {0}}}}, {"<b>", {{"ids", {1, 2}}}}}}};
  EXPECT_THAT(frame(beginning).before, ElementsAre(0));
  EXPECT_THAT(frame(beginning).after, ElementsAre(1, 2));
  const Json byte_level = {{"type", "ByteLevel"}};
  const Json several = {{"type", "Sequence"}, {"processors", Json::array({byte_level, beginning})}};
  EXPECT_THAT(frame(several).before, ElementsAre(0));
  EXPECT_TRUE(frame(byte_level).before.empty());
  EXPECT_TRUE(frame(Json()).before.empty());
  EXPECT_THAT(
      frame({{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 0}}}).after,
      ElementsAre(2));
}

TEST_F(TokenizerJsonTest, IsFoundInADirectoryOrByItsName) {
  const std::string file = write("tokenizer.json", described("llama3").dump());
  EXPECT_EQ(make_tokenizer(file)->find("<|eot_id|>"), 2);
  EXPECT_EQ(make_tokenizer(path(""))->find("<|eot_id|>"), 2);
}

TEST_F(TokenizerJsonTest, NamesUnknownParts) {
  const Json good = described("gpt2");
  const auto changed = [&](const auto& change) {
    Json json = good;
    change(json);
    return json;
  };
  expect_refused(changed([](Json& json) { json["model"]["type"] = "Unigram"; }), "\"Unigram\"");
  expect_refused(changed([](Json& json) { json["model"]["dropout"] = 0.1; }), "dropout 0.1");
  expect_refused(changed([](Json& json) { json["model"]["end_of_word_suffix"] = "</w>"; }),
                 "end_of_word_suffix");
  expect_refused(changed([](Json& json) { json["normalizer"] = {{"type", "NFC"}}; }), "\"NFC\"");
  expect_refused(changed([](Json& json) {
                   json["pre_tokenizer"] = {{"type", "Whitespace"}};
                 }),
                 "pre-tokenizer \"Whitespace\"");
  expect_refused(changed([](Json& json) {
                   json["decoder"] = {{"type", "WordPiece"}};
                 }),
                 "decoder \"WordPiece\"");
  expect_refused(changed([](Json& json) { json["added_tokens"][0]["lstrip"] = true; }),
                 "\"<|endoftext|>\" has lstrip true");
  expect_refused(changed([](Json& json) { json["model"]["vocab"]["a"] = -1; }), "the id of \"a\"");
  expect_refused(changed([](Json& json) { json["model"]["vocab"].erase("a"); }), "\"a\"");
  expect_refused(changed([](Json& json) { json["model"]["merges"] = Json::array({"a b c"}); }),
                 "does not consist of two tokens");
  expect_refused(changed([](Json& json) { json["pre_tokenizer"] = nullptr; }), "byte_fallback");
  expect_refused(Json::array({1}), "expected an object, found an array");
  EXPECT_THAT(error_of([&] { read_tokenizer_json(path("absent")); }), HasSubstr(path("absent")));
  EXPECT_THAT(error_of([&] { read_tokenizer_json(write("bad", "{")); }), HasSubstr("parse error"));
}

}  // namespace
}  // namespace tutti::training
