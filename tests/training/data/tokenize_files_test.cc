#include "training/data/tokenize_files.h"

#include <gmock/gmock.h>

#include "tests/support/test_data.h"
#include "tests/training/data/folder.h"
#include "training/data/bpe_tokenizer.h"
#include "training/data/token_file.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizeFilesTest : public FolderTest {
 protected:
  TokenizeResult run(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                     const std::string& validation = "", double share = 0.1) {
    shown_.clear();
    return tokenize_files(
        find_text_files(paths), tokenizer,
        {.out = path("out.bin"), .validation_out = validation, .validation_share = share},
        [&](uint64_t bytes) { shown_.push_back(bytes); });
  }
  std::vector<uint16_t> tokens(const std::string& name) const {
    const TokenFile file(path(name));
    return file.tokens();
  }

  std::vector<uint64_t> shown_;  // progress
};

TEST_F(TokenizeFilesTest, JoinsFilesAndCounts) {
  const TokenizeResult result = run(ByteTokenizer(), {write("b", "é"), write("a", "xy")});
  EXPECT_THAT(tokens("out.bin"), ElementsAre('x', 'y', 0xc3, 0xa9));
  EXPECT_EQ(result.bytes, 4u);
  EXPECT_EQ(result.characters, 3u);
  EXPECT_EQ(result.tokens, 4u);
  EXPECT_EQ(result.validation_tokens, 0u);
  EXPECT_EQ(shown_.back(), 4u);
}

TEST_F(TokenizeFilesTest, HoldsOutTheLastBytes) {
  const TokenizeResult result =
      run(ByteTokenizer(), {write("a", "0123456789abcdefghijklmno")}, path("val.bin"));
  EXPECT_EQ(result.tokens, 23u);
  EXPECT_THAT(tokens("val.bin"), ElementsAre('n', 'o')) << "a tenth of 25 bytes, rounded down";
}

// Every word is a token, with the space before it.
class WordTokenizer final : public Tokenizer {
 public:
  std::vector<uint16_t> encode(std::string_view text) const override {
    std::vector<uint16_t> lengths;
    for (const std::string_view word : splitter_.split(text)) {
      lengths.push_back(static_cast<uint16_t>(word.size()));
    }
    return lengths;
  }
  std::string decode(std::span<const uint16_t>) const override { return ""; }
  size_t vocabulary_size() const override { return 65536; }
  size_t last_cut(std::string_view text) const override { return WordSplitter::last_cut(text); }

 private:
  WordSplitter splitter_;
};

// Text of several blocks, in which words reach over the ends of blocks.
TEST_F(TokenizeFilesTest, PiecesDoNotCutWords) {
  std::string text;
  std::vector<uint16_t> lengths;
  for (size_t i = 0; text.size() < 5'000'000; ++i) {
    lengths.push_back(static_cast<uint16_t>(2 + i % 97));
    text += " " + std::string(1 + i % 97, 'x');
  }
  // The second file goes on with the first one's last word.
  const size_t half = text.size() / 2;
  const std::vector<std::string> paths = {write("a", text.substr(0, half)),
                                          write("b", text.substr(half))};
  run(WordTokenizer(), paths);
  EXPECT_EQ(tokens("out.bin"), lengths);
  EXPECT_GT(shown_.size(), 4u);
  EXPECT_TRUE(std::ranges::is_sorted(shown_));
  for (const double share : {0.001, 0.1, 0.5, 0.9, 0.999}) {
    const TokenizeResult result = run(WordTokenizer(), paths, path("val.bin"), share);
    std::vector<uint16_t> both = tokens("out.bin");
    EXPECT_EQ(result.tokens, both.size());
    for (const uint16_t length : tokens("val.bin")) both.push_back(length);
    EXPECT_EQ(both, lengths);
    uint64_t held_out = 0;
    for (const uint16_t length : tokens("val.bin")) held_out += length;
    const double wanted = static_cast<double>(text.size()) * share;
    EXPECT_GE(static_cast<double>(held_out), wanted - 1);
    EXPECT_LT(static_cast<double>(held_out), wanted + 100) << "less than a word more";
  }
}

TEST_F(TokenizeFilesTest, TextWithoutAPlaceToCutIsCutAnywhere) {
  std::string text;
  text.resize(40'000'000, 'x');
  const TokenizeResult result = run(WordTokenizer(), {write("a", text)});
  EXPECT_EQ(result.bytes, text.size());
  EXPECT_EQ(result.tokens, 3u) << "of 16 MiB, 16 MiB, and the rest";
}

TEST_F(TokenizeFilesTest, RefusesWrongOptions) {
  const std::string text = write("a", "text");
  EXPECT_THAT(error_of([&] { run(ByteTokenizer(), {text}, path("val.bin"), 0); }),
              HasSubstr("the share for validation is 0"));
  EXPECT_THAT(error_of([&] { run(ByteTokenizer(), {text}, path("val.bin"), 1); }),
              HasSubstr("the share for validation is 1"));
  EXPECT_THAT(error_of([&] { run(ByteTokenizer(), {text}, path("./out.bin")); }),
              AllOf(HasSubstr("both be written to"), HasSubstr(path("out.bin"))));
  EXPECT_EQ(files(), 1u) << "nothing is left";
}

TEST_F(TokenizeFilesTest, TinyShakespeareIsTheSameInPieces) {
  const std::filesystem::path vocabulary = testing::test_data("datasets/gpt2_tokenizer");
  const std::filesystem::path texts = testing::test_data("datasets/tinyshakespeare");
  if (vocabulary.empty() || texts.empty()) GTEST_SKIP() << testing::kNoTestData;
  const BpeTokenizer tokenizer(vocabulary);
  const TokenizeResult result = run(tokenizer, {texts / "input.txt"}, path("val.bin"));
  EXPECT_EQ(result.tokens + result.validation_tokens, 338025u);
  std::string text;
  read_blocks(texts / "input.txt", [&](std::string_view block) { text += block; });
  EXPECT_EQ(tokenizer.decode(tokens("out.bin")) + tokenizer.decode(tokens("val.bin")), text);
}

}  // namespace
}  // namespace tutti::training
