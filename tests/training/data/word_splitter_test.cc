#include "training/data/word_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/training/data/folder.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const WordSplitter& splitter() {
  static const WordSplitter one;
  return one;
}

TEST(WordSplitterTest, SplitsAsGpt2Does) {
  EXPECT_THAT(splitter().split(""), IsEmpty());
  EXPECT_THAT(splitter().split("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(splitter().split("I'll say 'twas 42nd, he's"),
              ElementsAre("I", "'ll", " say", " '", "twas", " 42", "nd", ",", " he", "'s"));
  EXPECT_THAT(splitter().split("a  b \n\n c  "), ElementsAre("a", " ", " b", " \n\n", " c", "  "));
  EXPECT_THAT(splitter().split("x!?...y_z"), ElementsAre("x", "!?...", "y", "_", "z"));
}

TEST(WordSplitterTest, KnowsUnicode) {
  EXPECT_THAT(splitter().split("naïve Straße"), ElementsAre("naïve", " Straße"));
  EXPECT_THAT(splitter().split("日本語、です"), ElementsAre("日本語", "、", "です"));
  EXPECT_THAT(splitter().split("²½ 😀x"), ElementsAre("²½", " 😀", "x"));
  // U+00A0, U+3000 and U+0085 are white space; U+180E and U+200B are not.
  EXPECT_THAT(splitter().split("a\u00a0\u3000\u0085"), ElementsAre("a", "\u00a0\u3000\u0085"));
  EXPECT_THAT(splitter().split("a \u180e\u200b"), ElementsAre("a", " \u180e\u200b"));
}

TEST(WordSplitterTest, InvalidUtf8IsAWord) {
  EXPECT_THAT(splitter().split("ab\xff\xfe cd"), ElementsAre("ab", "\xff\xfe", " cd"));
  EXPECT_THAT(splitter().split("\xe6\x97"), ElementsAre("\xe6\x97"));
  EXPECT_THAT(splitter().split("\xe6\x97 \x80"), ElementsAre("\xe6\x97", " ", "\x80"));
  EXPECT_THAT(splitter().split(std::string_view("\0\0a", 3)),
              ElementsAre(std::string_view("\0\0", 2), "a"));
}

TEST(WordSplitterTest, LongWordsTakeNoMoreThanTheirLength) {
  for (const std::string unit : {"a", "1", "!", " ", "\xff", "é"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_THAT(splitter().split(text), ElementsAre(text)) << unit;
  }
}

TEST(WordSplitterTest, TheLastCutIsBeforeWhiteSpaceAfterAWord) {
  EXPECT_EQ(splitter().last_cut(""), 0u);
  EXPECT_EQ(splitter().last_cut("word"), 0u);
  EXPECT_EQ(splitter().last_cut(" word"), 0u);
  EXPECT_EQ(splitter().last_cut("one two"), 3u);
  EXPECT_EQ(splitter().last_cut("one two  "), 7u);
  EXPECT_EQ(splitter().last_cut("one\u00a0 two"), 0u) << "inside a run of white space";
  EXPECT_EQ(splitter().last_cut("一。\n二"), 6u);
}

// Uses random texts of the pattern's character classes. The words before a cut must not depend on
// the text after it.
class CutsTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(CutsTest, DoNotChangeTheWords) {
  const WordSplitter splitter(GetParam());
  size_t found = 0;
  const std::string parts[] = {"a", "'s", "'l", "1",    "!",    " ",    " ",      "\n",
                               "é", "日", "。", "\xe2", "\x80", "\xff", "\u00a0", "\u3000"};
  for (uint64_t text_number = 0; text_number < 3000; ++text_number) {
    std::string text;
    for (uint64_t i = 0; i < 20; ++i) {
      text += parts[scale_below(random_bits(1, text_number, i), std::size(parts))];
    }
    const std::vector<std::string_view> whole = splitter.split(text);
    std::string joined;
    for (const std::string_view word : whole) joined += word;
    ASSERT_EQ(joined, text);
    for (size_t known = 0; known <= text.size(); ++known) {
      const std::string_view all = text;
      const size_t cut = splitter.last_cut(all.substr(0, known));
      found += cut > 0 ? 1 : 0;
      std::vector<std::string_view> words = splitter.split(all.substr(0, cut));
      for (const std::string_view word : splitter.split(all.substr(cut))) words.push_back(word);
      ASSERT_EQ(words, whole) << "cut at " << cut;
    }
  }
  EXPECT_GT(found, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Patterns, CutsTest, ::testing::Values(kGpt2Pattern, kLlama3Pattern));

TEST(WordSplitterTest, SplitsAsLlama3Does) {
  const WordSplitter splitter(kLlama3Pattern);
  EXPECT_THAT(splitter.split("I'LL say 12345, \"he\".\n\n x  y"),
              ElementsAre("I", "'LL", " say", " ", "123", "45", ",", " \"", "he", "\".\n\n", " x",
                          " ", " y"));
  EXPECT_EQ(splitter.last_cut("end.\n"), 0u) << "the line end is of the same word";
  EXPECT_EQ(splitter.last_cut("end\n"), 3u);
  EXPECT_EQ(splitter.last_cut("end. "), 4u);
}

TEST(WordSplitterTest, RefusesWhatMeansSomethingElseInOniguruma) {
  const auto refusal = [](std::string_view pattern) {
    return error_of([&] { const WordSplitter splitter(pattern); });
  };
  EXPECT_EQ(refusal(R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}]++[\r\n]*|\S)"),
            "no error");
  EXPECT_THAT(refusal(R"(\w+)"), HasSubstr(R"(\w is not supported)"));
  EXPECT_THAT(refusal(R"([\S])"), HasSubstr(R"(\S is not supported)"));
  EXPECT_THAT(refusal(R"(^a)"), HasSubstr("its ^ is not supported"));
  EXPECT_THAT(refusal(R"([a[b]])"), HasSubstr("its [ is not supported"));
  EXPECT_THAT(refusal(R"(a{1,3}+)"), HasSubstr("its } is not supported"));
  EXPECT_THAT(refusal(R"((a)"), HasSubstr("(a"));
}

TEST(WordSplitterTest, AdvancesWhereNothingMatches) {
  EXPECT_THAT(WordSplitter("a*").split("baab"), ElementsAre("b", "aa", "b"));
}

}  // namespace
}  // namespace tutti::training
