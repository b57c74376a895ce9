#include "training/data/tokenize_files.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "tests/support/test_data.h"
#include "tests/training/data/folder.h"
#include "training/data/bpe_tokenizer.h"
#include "training/data/bpe_vocabulary.h"
#include "training/data/token_file.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
  std::vector<int32_t> tokens(const std::string& name) const {
    const TokenFile file(path(name));
    return file.tokens();
  }

  std::vector<uint64_t> shown_;  // the reported progress
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

// Makes one token of each word and the space before it.
class WordTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const override {
    std::vector<std::vector<int32_t>> all;
    for (const TextPiece& piece : pieces) {
      all.emplace_back();
      for (const std::string_view word : splitter_.split(piece.text)) {
        all.back().push_back(static_cast<int32_t>(word.size()));
      }
    }
    return all;
  }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  std::string text_of(int32_t) const override { return ""; }
  size_t vocabulary_size() const override { return size_t{1} << 25; }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  size_t last_cut(std::string_view text) const override { return splitter_.last_cut(text); }

 private:
  WordSplitter splitter_;
};

// The text has several blocks, and some words straddle two blocks.
TEST_F(TokenizeFilesTest, PiecesDoNotCutWords) {
  std::string text;
  std::vector<int32_t> lengths;
  for (size_t i = 0; text.size() < 5'000'000; ++i) {
    lengths.push_back(static_cast<int32_t>(2 + i % 97));
    text += " " + std::string(1 + i % 97, 'x');
  }
  // The file boundary cuts a word, which the second file continues.
  const size_t half = text.size() / 2;
  const std::vector<std::string> paths = {write("a", text.substr(0, half)),
                                          write("b", text.substr(half))};
  run(WordTokenizer(), paths);
  EXPECT_EQ(tokens("out.bin"), lengths);
  EXPECT_GT(shown_.size(), 4u);
  EXPECT_TRUE(std::ranges::is_sorted(shown_));
  for (const double share : {0.001, 0.1, 0.5, 0.9, 0.999}) {
    const TokenizeResult result = run(WordTokenizer(), paths, path("val.bin"), share);
    std::vector<int32_t> both = tokens("out.bin");
    EXPECT_EQ(result.tokens, both.size());
    for (const int32_t length : tokens("val.bin")) both.push_back(length);
    EXPECT_EQ(both, lengths);
    uint64_t held_out = 0;
    for (const int32_t length : tokens("val.bin")) held_out += length;
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

// Otherwise all of the text would be held out.
TEST_F(TokenizeFilesTest, TextWithoutAPlaceToCutIsHeldOutFromACharacter) {
  std::string text;
  while (text.size() < 300'000) text += "春";
  run(WordTokenizer(), {write("a", text)}, path("val.bin"));
  ASSERT_THAT(tokens("out.bin"), ElementsAre(270'000));
  EXPECT_THAT(tokens("val.bin"), ElementsAre(30'000));
  EXPECT_THROW(run(WordTokenizer(), {write("a", text.substr(0, 3000))}, path("val.bin")), Error)
      << "a single word";
  EXPECT_THAT(tokens("out.bin"), ElementsAre(270'000)) << "the earlier file remains";
}

TEST_F(TokenizeFilesTest, HoldsOutAShareOfCompressedText) {
  std::string text;
  for (int i = 0; text.size() < 900'000; ++i) text += cat(i, ' ');
  write("a", text);
  ASSERT_EQ(std::system(cat("gzip -f ", path("a")).c_str()), 0);
  const TokenizeResult result = run(ByteTokenizer(), {path("a.gz")}, path("val.bin"));
  EXPECT_EQ(result.tokens + result.validation_tokens, text.size());
  EXPECT_NEAR(static_cast<double>(result.validation_tokens), 90'000, 20'000);
}

TEST_F(TokenizeFilesTest, AnyNumberOfThreadsWritesTheSame) {
  std::string text;
  for (int i = 0; text.size() < 6'000'000; ++i) text += cat(i, i % 7 == 0 ? "\n" : " ");
  write("a", text);
  std::string first;
  for (const int threads : {1, 2, 5}) {
    tokenize_files(find_text_files({path("a")}), WordTokenizer(),
                   {.out = path("out.bin"), .validation_out = path("val.bin"), .threads = threads},
                   [](uint64_t) {});
    const std::string both = read("out.bin") + read("val.bin");
    if (first.empty()) first = both;
    EXPECT_TRUE(both == first) << threads << " threads";
  }
}

// --- Documents ---

class DocumentsTest : public TokenizeFilesTest {
 protected:
  static constexpr int32_t kEnd = 256;

  // A token for each byte, and an end-of-text token.
  class Tokens final : public Tokenizer {
   public:
    using Tokenizer::encode;
    std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const override {
      return bytes_.encode(pieces);
    }
    std::string decode(std::span<const int32_t> tokens) const override {
      return bytes_.decode(tokens);
    }
    std::string text_of(int32_t token) const override { return bytes_.text_of(token); }
    size_t vocabulary_size() const override { return 257; }
    std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }
    std::optional<int32_t> end_of_text() const override { return kEnd; }
    size_t last_cut(std::string_view text) const override { return bytes_.last_cut(text); }

   private:
    ByteTokenizer bytes_;
  };

  TokenizeResult documents(const std::vector<std::string>& paths, const DocumentFields& fields = {},
                           bool held_out = false) {
    return tokenize_files(find_text_files(paths), Tokens(),
                          {.out = path("out.bin"),
                           .validation_out = held_out ? path("val.bin") : "",
                           .validation_share = 0.5,
                           .fields = fields,
                           .end_of_text = kEnd},
                          [](uint64_t) {});
  }
};

// The position from which text is held out is inside a document that is not divided.
TEST_F(DocumentsTest, TextAfterADividedDocumentIsHeldOut) {
  const std::vector<std::string> paths = {
      write("a.jsonl", cat(R"({"text": ")", std::string(1000, 'x'), "\"}\n")),
      write("b", std::string(300, 'y'))};
  run(Tokens(), paths, path("val.bin"), 0.5);
  EXPECT_THAT(tokens("out.bin"), AllOf(Contains('x'), Not(Contains('y'))));
  EXPECT_THAT(tokens("val.bin"), AllOf(Contains('y'), Not(Contains('x'))));
}

TEST_F(DocumentsTest, EndWithTheEndOfText) {
  const TokenizeResult result =
      documents({write("a", "xy"), write("b.jsonl", "{\"text\":\"1\"}\n\n{\"text\":\"\"}\n"),
                 write("c", "z")});
  EXPECT_THAT(tokens("out.bin"), ElementsAre('x', 'y', kEnd, '1', kEnd, kEnd, 'z', kEnd));
  EXPECT_EQ(result.documents, 4u);
  EXPECT_EQ(result.bytes, 4u);
  const TokenFormat format = TokenFile(path("out.bin")).summary().format;
  EXPECT_EQ(format.vocabulary, 257);
  EXPECT_EQ(format.end_of_text, kEnd);
  EXPECT_FALSE(format.marks_unpredicted);
}

TEST_F(DocumentsTest, LongTextsAreOne) {
  const std::string text(5'000'000, 'x');
  EXPECT_EQ(documents({write("a", text), write("b", "y")}).documents, 2u);
  const std::vector<int32_t> all = tokens("out.bin");
  ASSERT_EQ(all.size(), text.size() + 3);
  EXPECT_EQ(std::ranges::count(all, kEnd), 2);
  EXPECT_EQ(all[text.size()], kEnd);
}

TEST_F(DocumentsTest, PromptsAreMarked) {
  const std::string file = write("a.jsonl",
                                 "{\"prompt\":\"ab\",\"completion\":\"c\"}\n"
                                 "{\"prompt\":\"\",\"completion\":\"d\"}");
  const TokenizeResult result = documents({file});
  EXPECT_THAT(tokens("out.bin"),
              ElementsAre(unpredicted('a'), unpredicted('b'), 'c', kEnd, 'd', kEnd));
  EXPECT_EQ(result.unpredicted, 2u);
  EXPECT_EQ(result.bytes, 4u);
  EXPECT_TRUE(TokenFile(path("out.bin")).summary().format.marks_unpredicted);
}

TEST_F(DocumentsTest, FieldsHaveNames) {
  const std::string file =
      write("a.jsonl", "{\"text\":\"no\",\"q\":\"?\",\"a.b\":\"!\",\"m\":{\"x.y\":{\"z\":\"+\"}}}");
  documents({file}, {.text = "m.x.y.z"});
  EXPECT_THAT(tokens("out.bin"), ElementsAre('+', kEnd));
  documents({file}, {.prompt = "q", .completion = "a.b", .pairs_only = true});
  EXPECT_THAT(tokens("out.bin"), ElementsAre(unpredicted('?'), '!', kEnd));
  EXPECT_THAT(error_of([&] { documents({file}, {.text = "absent"}); }),
              AllOf(HasSubstr("line 1 of"), HasSubstr("\"absent\""), HasSubstr("text, q, a.b, m")));
}

TEST_F(DocumentsTest, RecordsWithoutAValueArePassedOver) {
  documents({write("a.jsonl",
                   "{\"text\":null}\n{\"text\":\"x\",\"score\":NaN}\n"
                   "{\"score\":[-Infinity,Infinity],\"text\":\"\\\"NaN\"}\n{\"text\":NaN}\n")});
  EXPECT_THAT(tokens("out.bin"), ElementsAre('x', kEnd, '"', 'N', 'a', 'N', kEnd));
  documents({write("b.jsonl",
                   "{\"prompt\":null,\"completion\":\"a\"}\n"
                   "{\"prompt\":\"b\",\"completion\":null}\n"
                   "{\"prompt\":\"c\",\"completion\":\"d\"}\n")});
  EXPECT_THAT(tokens("out.bin"), ElementsAre(unpredicted('c'), 'd', kEnd));
  EXPECT_THAT(error_of([&] { documents({write("c.jsonl", "{\"text\":NaNa}\n")}); }),
              HasSubstr("line 1 of"));
}

TEST_F(DocumentsTest, TextsAndPromptsAreNotMixed) {
  const std::string file =
      write("a.jsonl", "{\"text\":\"x\"}\n{\"prompt\":\"a\",\"completion\":\"b\"}\n");
  EXPECT_THAT(error_of([&] { documents({file}); }), HasSubstr("tokenize them separately"));
  EXPECT_EQ(files(), 1u) << "no training tokens are left";
}

TEST_F(DocumentsTest, WholeRecordsAreHeldOut) {
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += cat("{\"text\":\"", i, "\"}\n");
  documents({write("a.jsonl", lines)}, {}, true);
  EXPECT_THAT(tokens("out.bin"),
              ElementsAre('0', kEnd, '1', kEnd, '2', kEnd, '3', kEnd, '4', kEnd));
  EXPECT_THAT(tokens("val.bin"),
              ElementsAre('5', kEnd, '6', kEnd, '7', kEnd, '8', kEnd, '9', kEnd));
}

TEST_F(TokenizeFilesTest, RefusesWrongOptions) {
  const std::string text = write("a", "text");
  EXPECT_THAT(error_of([&] { run(ByteTokenizer(), {text}, path("val.bin"), 0); }),
              HasSubstr("the share for validation is invalid: 0"));
  EXPECT_THAT(error_of([&] { run(ByteTokenizer(), {text}, path("val.bin"), 1); }),
              HasSubstr("the share for validation is invalid: 1"));
  EXPECT_THAT(error_of([&] { run(ByteTokenizer(), {text}, path("./out.bin")); }),
              AllOf(HasSubstr("both be written to"), HasSubstr(path("out.bin"))));
  EXPECT_EQ(files(), 1u) << "no training tokens are left";
}

TEST_F(TokenizeFilesTest, TinyShakespeareIsTheSameInPieces) {
  const std::filesystem::path vocabulary = testing::test_data("datasets/gpt2_tokenizer");
  const std::filesystem::path texts = testing::test_data("datasets/tinyshakespeare");
  if (vocabulary.empty() || texts.empty()) GTEST_SKIP() << testing::kNoTestData;
  const BpeTokenizer tokenizer(read_gpt2_vocabulary(vocabulary));
  const TokenizeResult result = run(tokenizer, {texts / "input.txt"}, path("val.bin"));
  EXPECT_EQ(result.tokens + result.validation_tokens, 338025u);
  std::string text;
  read_texts(texts / "input.txt", [&](std::string_view part) { text += part; });
  EXPECT_EQ(tokenizer.decode(tokens("out.bin")) + tokenizer.decode(tokens("val.bin")), text);
}

}  // namespace
}  // namespace tutti::training
