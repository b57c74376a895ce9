// `tutti tokenize`: the files it writes, what it says, and what it refuses.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tests/tools/cli/cli.h"
#include "tests/training/data/tiny_vocabulary.h"
#include "training/data/token_file.h"

namespace tutti::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Tokenize : public Cli {
 protected:
  static std::vector<uint16_t> tokens(const std::string& path) {
    const training::TokenFile file(path);
    return file.tokens();
  }
  void expect_refused(Words more, const std::vector<std::string>& said) const {
    Words arguments = {"tokenize", "--out", path("out.bin")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = run(arguments);
    EXPECT_THAT(result.code, ::testing::AnyOf(1, 2));
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    for (const std::string& part : said) EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_FALSE(std::filesystem::exists(path("out.bin")));
    EXPECT_FALSE(std::filesystem::exists(path("out.bin.partial")));
  }
};

TEST_F(Tokenize, BytesAndAValidationFile) {
  const Result result =
      run({"tokenize", "--data", write("text", "0123456789abcdefghi\xc3\xa9"), "--out",
           path("train.bin"), "--validation-out", path("val.bin"), "--validation-share", "0.25"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, HasSubstr("train.bin: 16 tokens\n"));
  EXPECT_THAT(result.out, HasSubstr("val.bin: 5 tokens\n"));
  EXPECT_THAT(result.out, HasSubstr("0.952 characters per token (20 characters, 21 bytes; "
                                    "a vocabulary of 256)"));
  EXPECT_THAT(result.out, Not(HasSubstr("\r"))) << "no progress in a pipe";
  EXPECT_THAT(tokens(path("val.bin")), ElementsAre('g', 'h', 'i', 0xc3, 0xa9));
}

TEST_F(Tokenize, PairsOfADirectorysVocabulary) {
  std::filesystem::create_directory(path("gpt2"));
  write("gpt2/vocab.json", training::tiny_vocabulary().dump());
  write("gpt2/merges.txt", training::kMerges);
  std::filesystem::create_directory(path("texts"));
  write("texts/b", " world");
  write("texts/a", "hello");
  const Result result = run(
      {"tokenize", "--data", path("texts"), "--tokenizer", path("gpt2"), "--out", path("out.bin")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("out.bin: 6 tokens\n1.833 characters per token"));
  EXPECT_THAT(tokens(path("out.bin")), ElementsAre(258, 'o', 259, 260, 'l', 'd'));
}

TEST_F(Tokenize, WrongInputIsRefusedAndNothingWritten) {
  const std::string text = write_text();
  expect_refused({}, {"--data is required"});
  expect_refused({"--data", path("absent")}, {path("absent"), "No such file"});
  expect_refused({"--data", write("empty", "")}, {path("empty"), "empty"});
  expect_refused({"--data", text, "--tokenizer", path("")}, {"no tokenizer in", "vocab.bpe"});
  expect_refused({"--data", text, "--validation-share", "0.5"}, {"--validation-out"});
  expect_refused({"--data", text, "--validation-out", path("v"), "--validation-share", "1"},
                 {"share for validation is 1"});
  expect_refused({"--data", text, "--validation-out", path("no/v")}, {path("no/v"), "No such"});
  const Result result = run({"tokenize", "--data", text, "--out", "/dev/null"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("/dev/null"));
}

}  // namespace
}  // namespace tutti::tool
