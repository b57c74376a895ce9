#include "training/data/bpe_tokenizer.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "tests/support/test_data.h"
#include "tests/training/data/folder.h"
#include "tests/training/data/tiny_vocabulary.h"
#include "training/core/random.h"
#include "training/data/bpe_vocabulary.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BpeTokenizerTest : public FolderTest {
 protected:
  BpeTokenizer tiny() const {
    write("encoder.json", tiny_vocabulary().dump());
    write("vocab.bpe", kMerges);
    return BpeTokenizer(read_gpt2_vocabulary(path("")));
  }
  void expect_refused(const Json& vocabulary, const std::string& merges,
                      const std::string& cause) const {
    const std::string text =
        vocabulary.is_string() ? vocabulary.get<std::string>() : vocabulary.dump();
    write("encoder.json", text);
    write("vocab.bpe", merges);
    EXPECT_THAT(error_of([&] { const BpeTokenizer tokenizer(read_gpt2_vocabulary(path(""))); }),
                AllOf(HasSubstr(path("")), HasSubstr(cause)));
  }
};

TEST_F(BpeTokenizerTest, MergesInTheLearntOrder) {
  const BpeTokenizer tokenizer = tiny();
  EXPECT_EQ(tokenizer.vocabulary_size(), 263u);
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
  // "l l" is merged before "l o", so that the word becomes hell+o, not he+l+lo.
  EXPECT_THAT(tokenizer.encode("hello world"), ElementsAre(258, 'o', 259, 260, 'l', 'd'));
  // Repeated words; three equal pairs in a row are merged from the left.
  EXPECT_THAT(tokenizer.encode("aaa aaa aaa"), ElementsAre(261, 'a', ' ', 261, 'a', ' ', 261, 'a'));
  // Merges do not cross a word's boundary.
  EXPECT_THAT(tokenizer.encode("h\ne"), ElementsAre('h', '\n', 'e'));
}

TEST_F(BpeTokenizerTest, EveryByteComesBack) {
  const BpeTokenizer tokenizer = tiny();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string text;
    for (uint64_t j = 0; j < 30; ++j) text.push_back(static_cast<char>(random_bits(1, i, j) % 256));
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST_F(BpeTokenizerTest, AWordAsLongAsTheText) {
  const BpeTokenizer tokenizer = tiny();
  const std::string text(2'000'000, 'a');
  EXPECT_EQ(tokenizer.encode(text), std::vector<int32_t>(1'000'000, 261));
}

TEST_F(BpeTokenizerTest, ReadsHuggingFacesNames) {
  write("vocab.json", tiny_vocabulary().dump());
  write("merges.txt", kMerges);
  EXPECT_THAT(BpeTokenizer(read_gpt2_vocabulary(path(""))).encode("hell"), ElementsAre(258));
}

TEST_F(BpeTokenizerTest, RefusesFilesOfAnotherTokenizer) {
  write("vocab.json", tiny_vocabulary().dump());
  write("merges.txt", kMerges);
  const auto refusal = [&] {
    return error_of([&] { const BpeTokenizer tokenizer(read_gpt2_vocabulary(path(""))); });
  };
  write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("not GPT-2's tokenizer"), HasSubstr("Qwen2Tokenizer"),
                               HasSubstr("tokenizer.json")));
  for (const char* own : {R"({"tokenizer_class": "GPT2TokenizerFast"})", R"({"tokenizer_class":
                          "GPT2Tokenizer"})",
                          R"({"model_max_length": 1024})"}) {
    write("tokenizer_config.json", own);
    EXPECT_EQ(refusal(), "no error");
  }
  write("added_tokens.json", R"({"hell": 258})");
  EXPECT_EQ(refusal(), "no error");
  write("added_tokens.json", R"({"<|im_start|>": 263})");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("added_tokens.json"), HasSubstr("<|im_start|>")));
}

TEST_F(BpeTokenizerTest, RefusesTokensThatItDoesNotHave) {
  const BpeTokenizer tokenizer = tiny();
  EXPECT_THAT(error_of([&] {
                tokenizer.decode(std::vector<int32_t>{262, 263});
              }),
              HasSubstr("token 263 is not in the vocabulary of size 263"));
  EXPECT_THAT(error_of([&] { ByteTokenizer().decode(std::vector<int32_t>{256}); }),
              HasSubstr("token 256 is not a byte"));
}

TEST_F(BpeTokenizerTest, RefusesFilesThatDoNotFit) {
  EXPECT_THAT(error_of([&] { const BpeTokenizer tokenizer(read_gpt2_vocabulary(path(""))); }),
              AllOf(HasSubstr(path("")), HasSubstr("encoder.json"), HasSubstr("merges.txt")));
  expect_refused("{\"a\": 1", kMerges, "parse error");
  expect_refused(Json::array({1}), kMerges, "not a JSON object");
  Json wrong = tiny_vocabulary();
  wrong["lo"] = 263;
  expect_refused(wrong, kMerges, "the id of \"lo\" is 263");
  wrong["lo"] = -1;
  expect_refused(wrong, kMerges, "the id of \"lo\" is -1");
  wrong["lo"] = 3;
  expect_refused(wrong, kMerges, "two tokens have the id 3");
  wrong = tiny_vocabulary();
  wrong.erase("lo");
  wrong["日"] = 262;
  expect_refused(wrong, kMerges, "encodes no byte");
  wrong = tiny_vocabulary();
  wrong.erase("a");
  wrong["ab"] = 97;
  expect_refused(wrong, kMerges, "no token for byte 97");
  expect_refused(tiny_vocabulary(), "h e\nl\n", "\"l\" is not two tokens");
  expect_refused(tiny_vocabulary(), "h e\nh l\n", "line 2 of ");
  expect_refused(tiny_vocabulary(), "h e\nh l\n", "\"hl\" is not in the vocabulary");
}

TEST(ByteTokenizerTest, EveryByteIsAToken) {
  const ByteTokenizer tokenizer;
  EXPECT_THAT(tokenizer.encode("a\xff"), ElementsAre('a', 255));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', 255}), "a\xff");
  EXPECT_EQ(tokenizer.last_cut("ab"), 2u);
  EXPECT_EQ(make_tokenizer("")->vocabulary_size(), 256u);
}

// The results of OpenAI's encoder.
TEST(Gpt2Test, KnownEncodings) {
  const std::filesystem::path folder = testing::test_data("datasets/gpt2_tokenizer");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  const BpeTokenizer tokenizer(read_gpt2_vocabulary(folder));
  EXPECT_EQ(tokenizer.vocabulary_size(), 50257u);
  EXPECT_THAT(tokenizer.encode("Hello world"), ElementsAre(15496, 995));
  EXPECT_THAT(tokenizer.encode("hello, world!\n"), ElementsAre(31373, 11, 995, 0, 198));
  EXPECT_THAT(tokenizer.decode(std::vector<int32_t>{50256}), "<|endoftext|>");
  EXPECT_THAT(
      tokenizer.encode("I'll say it's 1234567890, isn't it?"),
      ElementsAre(40, 1183, 910, 340, 338, 17031, 2231, 30924, 3829, 11, 2125, 470, 340, 30));
  EXPECT_THAT(tokenizer.encode("  indented\n\n\tcode();  "),
              ElementsAre(220, 773, 4714, 628, 197, 8189, 9783, 220, 220));
  EXPECT_THAT(tokenizer.encode("naïve Straße 日本語 😀"),
              ElementsAre(2616, 38776, 15195, 39683, 68, 10545, 245, 98, 17312, 105, 45739, 252,
                          30325, 222));
  EXPECT_THAT(tokenizer.encode("a\u00a0b\u3000 c\u180e d"),
              ElementsAre(64, 1849, 65, 5099, 222, 269, 157, 254, 236, 288));
  EXPECT_THAT(tokenizer.encode("<|endoftext|>"), ElementsAre(27, 91, 437, 1659, 5239, 91, 29));
}

TEST(Gpt2Test, TinyShakespeareHasAsManyTokensAsInLlmc) {
  const std::filesystem::path folder = testing::test_data("datasets/gpt2_tokenizer");
  const std::filesystem::path texts = testing::test_data("datasets/tinyshakespeare");
  if (folder.empty() || texts.empty()) GTEST_SKIP() << testing::kNoTestData;
  const BpeTokenizer tokenizer(read_gpt2_vocabulary(folder));
  std::ifstream file(texts / "input.txt", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  EXPECT_EQ(tokens.size(), 338025u);
  EXPECT_EQ(tokenizer.decode(tokens), text);
}

}  // namespace
}  // namespace tutti::training
