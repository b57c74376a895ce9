#include "training/models/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_mix(text, "mix.txt");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MixTest, LettersAreSeparatedByCommasBlanksOrLines) {
  constexpr auto b = LayerSplit::batch, m = LayerSplit::model;
  const Mix expected = {b, m, m, b};
  for (const char* text :
       {"b,m,m,b", " b m\tm  b ", "b\nm\r\nm\n\nb\n", "# four layers\nb # large\nm,m\nb#last"}) {
    EXPECT_EQ(parse_mix(text, "here"), expected) << text;
  }
  EXPECT_EQ(to_text(expected), "b,m,m,b");
  EXPECT_EQ(parse_mix("d,b", "here"), (Mix{LayerSplit::domain, b}));
  EXPECT_EQ(to_text({LayerSplit::domain, m}), "d,m");
  EXPECT_EQ(parse_mix("m", "here"), Mix{m});
  EXPECT_EQ(to_text({}), "");
}

TEST(MixTest, ReturnsEachMixOnce) {
  std::vector<std::string> texts;
  for (const Mix& mix : all_mixes(2, 1)) texts.push_back(to_text(mix));
  EXPECT_EQ(texts, (std::vector<std::string>{"b,b", "b,m", "m,b", "m,m", "d,b", "d,m"}));
  EXPECT_EQ(all_mixes(5).size(), 32u);
  EXPECT_EQ(all_mixes(5, 3).size(), 108u);
}

TEST(MixTest, FilesHaveLongerNames) {
  for (const char* text : {"b", "b,m", "x,y", "b m", ""}) EXPECT_TRUE(is_mix(text)) << text;
  for (const char* text : {"bm", "./b", "mix.txt", "b,mm"}) EXPECT_FALSE(is_mix(text)) << text;
}

TEST(MixTest, MistakesAreNamed) {
  EXPECT_THAT(refusal("b,x"),
              AllOf(HasSubstr("\"x\""), HasSubstr("mix.txt"), HasSubstr("b (batch)")));
  EXPECT_THAT(refusal("b\nm\nmodel\n"),
              AllOf(HasSubstr("\"model\""), HasSubstr("mix.txt, line 3")));
  for (const char* text : {"", " ,\n", "# b\n"}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("no layers"), HasSubstr("b,m,m,b")));
  }
  std::string many;
  for (int i = 0; i < 10001; ++i) many += "b,";
  EXPECT_THAT(refusal(many), HasSubstr("more than 10000 layers"));
  EXPECT_THAT(refusal(std::string("b,\0", 3)), HasSubstr("mix.txt"));
}

}  // namespace
}  // namespace tutti::training
