// Tests `tutti tokenize`: its files, its output and its errors.
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
  static std::vector<int32_t> tokens(const std::string& path) {
    const training::TokenFile file(path);
    return file.tokens();
  }
  void expect_refused(Words more, const std::vector<std::string>& said) const {
    Words arguments = {"tokenize"};
    if (std::ranges::count(more, "--out") == 0) arguments = {"tokenize", "--out", path("out.bin")};
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

TEST_F(Tokenize, EmptyInputIsRefused) {
  expect_refused({"--data", write("blank.jsonl", "\n\n")},
                 {"no training tokens are left", "the texts are empty"});
}

TEST_F(Tokenize, WritesBytesAndAValidationFile) {
  const Result result =
      run({"tokenize", "--data", write("text", "0123456789abcdefghi\xc3\xa9"), "--out",
           path("train.bin"), "--validation-out", path("val.bin"), "--validation-share", "0.25"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, IsQuiet());
  EXPECT_THAT(result.out, HasSubstr("train.bin: 16 tokens\n"));
  EXPECT_THAT(result.out, HasSubstr("val.bin: 5 tokens\n"));
  EXPECT_THAT(result.out, HasSubstr("0.952 characters per token (20 characters, 21 bytes; "
                                    "a vocabulary of 256)"));
  EXPECT_THAT(result.out, Not(HasSubstr("\r"))) << "no progress in a pipe";
  EXPECT_THAT(tokens(path("val.bin")), ElementsAre('g', 'h', 'i', 0xc3, 0xa9));
}

TEST_F(Tokenize, KeepsTheText) {
  const std::string text = write("text", "0123456789");
  std::filesystem::create_symlink(text, path("link"));
  for (const std::string& name : {text, path("link"), path("./text")}) {
    expect_refused({"--data", text, "--out", name}, {"would overwrite that file", text});
    expect_refused({"--data", text, "--validation-out", name}, {"would overwrite that file"});
  }
  EXPECT_EQ(read(text), "0123456789");
}

TEST_F(Tokenize, UsesTheVocabularyOfADirectory) {
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

TEST_F(Tokenize, EndOfTextFollowsEachDocument) {
  std::filesystem::create_directory(path("gpt2"));
  Json vocabulary = training::tiny_vocabulary();
  vocabulary["<|endoftext|>"] = 263;
  write("gpt2/vocab.json", vocabulary.dump());
  write("gpt2/merges.txt", training::kMerges);
  const std::string file = write("a.jsonl", "{\"body\": \"hello\"}\n{\"body\": \"or\"}\n");
  const auto made = [&](const Words& more) {
    Words words = {"tokenize",    "--data",     file,    "--field",      "body",
                   "--tokenizer", path("gpt2"), "--out", path("out.bin")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Result result = made({});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 documents, each followed by <|endoftext|>\n"));
  EXPECT_THAT(tokens(path("out.bin")), ElementsAre(258, 'o', 263, 260, 263));
  made({"--eot", "none"});
  EXPECT_THAT(tokens(path("out.bin")), ElementsAre(258, 'o', '\n', 260, '\n'));
  made({"--eot", "or"});
  EXPECT_THAT(tokens(path("out.bin")), ElementsAre(258, 'o', 260, 260, 260));
  const Result wrong = made({"--eot", "<s>"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("the tokenizer has no token \"<s>\" [--eot]"));
}

TEST_F(Tokenize, PromptsAreNotLearnt) {
  const std::string file = write("a.jsonl", "{\"text\":\"t\",\"q\":\"ab\",\"a\":\"c\"}\n");
  const Result result = run({"tokenize", "--data", file, "--prompt-field", "q",
                             "--completion-field", "a", "--out", path("out.bin")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 prompt tokens are excluded"));
  EXPECT_THAT(tokens(path("out.bin")),
              ElementsAre(training::unpredicted('a'), training::unpredicted('b'), 'c', '\n'));
}

TEST_F(Tokenize, ReadsParquetAndArrow) {
  const std::string python = TEST_PYTHON;
  const std::string program =
      "import pyarrow, pyarrow.parquet, pyarrow.feather\n"
      "table = pyarrow.table({'text': ['ab', None, '\u00e9'], 'n': [1, 2, 3],\n"
      "                       'meta': [{'body': 'x'}, {'body': 'y'}, {'body': 'z'}]})\n"
      "pyarrow.parquet.write_table(table, 'DIR/a.parquet')\n"
      "pyarrow.feather.write_feather(table, 'DIR/a.arrow', compression='uncompressed')\n"
      "with pyarrow.ipc.new_stream('DIR/stream.arrow', table.schema) as stream:\n"
      "    stream.write_table(table)\n";
  std::string here = program;
  for (size_t at = here.find("DIR/"); at != here.npos; at = here.find("DIR/")) {
    here.replace(at, 4, path(""));
  }
  if (!std::filesystem::exists(python) || start_program({python, "-c", here}).finish().code != 0) {
    GTEST_SKIP() << "there is no pyarrow in " << python << ": tools/setup --tests gets it";
  }
  for (const std::string name : {"a.parquet", "a.arrow", "stream.arrow"}) {
    const Result result =
        run({"tokenize", "--data", path(name), "--python", python, "--out", path("out.bin"),
             "--validation-out", path("val.bin"), "--validation-share", "0.7"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(tokens(path("out.bin")), ElementsAre('a', 'b', '\n'));
    EXPECT_THAT(tokens(path("val.bin")), ElementsAre(0xc3, 0xa9, '\n'));
  }
  std::filesystem::remove(path("out.bin"));
  expect_refused({"--data", path("a.parquet"), "--python", python, "--field", "n"},
                 {"no text column \"n\"", "text (string), n (int64), meta (struct"});
  expect_refused({"--data", path("a.parquet"), "--python", path("absent")},
                 {"cannot start", path("absent"), "--python"});
  expect_refused({"--data", write("b.parquet", "text"), "--python", python}, {path("b.parquet")});
  const Result nested = run({"tokenize", "--data", path("a.parquet"), "--python", python, "--field",
                             "meta.body", "--out", path("out.bin")});
  EXPECT_THAT(tokens(path("out.bin")), ElementsAre('x', '\n', 'y', '\n', 'z', '\n')) << nested.err;
}

TEST_F(Tokenize, NamesTheMissingPyarrow) {
  const std::string python = write("python",
                                   "#!/bin/sh\nprintf 'E\\0\\0\\0\\0\\0\\0\\0\\0"
                                   "\\007\\0\\0\\0pyarrow'\n");
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  expect_refused({"--data", write("a.parquet", "PAR1"), "--python", python},
                 {"without pyarrow", "-m pip install pyarrow"});
}

// GPT-3's mixture (Brown et al., 2020, table 2.2) by its rounded weights.
TEST_F(Tokenize, DataPrintsTheEpochsOfAMixture) {
  const Result result = run({"data", "410B", "19B", "12B", "55B", "3B", "--data-weights", "60",
                             "22", "8", "8", "3", "--tokens", "300B"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* row :
       {"410000000000   59.41%", " 0.435\n", " 3.439\n", " 1.980\n", " 0.432\n", " 2.970\n"}) {
    EXPECT_THAT(result.out, HasSubstr(row));
  }
  run({"tokenize", "--data", write("text", std::string(500, 'x')), "--out", path("out.bin")});
  EXPECT_THAT(run({"data", path("out.bin")}).out,
              HasSubstr("out.bin: 500 tokens, vocabulary size 256, fingerprint "));
  EXPECT_THAT(run({"data", path("out.bin"), "--tokens", "many"}).err, HasSubstr("300B"));
  EXPECT_THAT(run({"data", path("absent")}).err, HasSubstr(path("absent")));
  EXPECT_THAT(run({"data", "1M", "1M", "--tokens", "1M", "--data-weights", "1"}).err,
              HasSubstr("2 data sets were given, but 1 weights"));
}

TEST_F(Tokenize, WrongInputIsRefusedAndNothingWritten) {
  const std::string text = write_text();
  expect_refused({}, {"--data is required"});
  expect_refused({"--data", path("absent")}, {path("absent"), "No such file"});
  expect_refused({"--data", write("empty", "")}, {path("empty"), "empty"});
  expect_refused({"--data", text, "--tokenizer", path("")}, {"no tokenizer found in", "vocab.bpe"});
  expect_refused({"--data", text, "--validation-share", "0.5"}, {"--validation-out"});
  expect_refused({"--data", text, "--validation-out", path("v"), "--validation-share", "1"},
                 {"share for validation is invalid: 1"});
  expect_refused({"--data", text, "--validation-out", path("no/v")}, {path("no/v"), "No such"});
  const Result result = run({"tokenize", "--data", text, "--out", "/dev/null"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("/dev/null"));
}

}  // namespace
}  // namespace tutti::tool
