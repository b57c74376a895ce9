#include "training/data/text_files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/text.h"
#include "tests/training/data/folder.h"
#include "training/data/documents.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using TextFilesTest = FolderTest;

TEST_F(TextFilesTest, SortsFilesAndLooksIntoDirectories) {
  std::filesystem::create_directory(path("b"));
  write("b/2", "four");
  write("b/1", std::string(3'000'000, 'x'));
  write("b/3", std::string("a\0b", 3));
  write("b/4", "");
  std::filesystem::create_directory(path("b/5"));
  std::filesystem::create_symlink(path("b/1"), path("b/6"));
  write("c", "c");
  write("a", "aa");
  const std::vector<TextFile> files = find_text_files({path("c"), path("b"), path("a")});
  ASSERT_EQ(files.size(), 4u);
  const std::string names[] = {path("a"), path("b/1"), path("b/2"), path("c")};
  const uint64_t bytes[] = {2, 3'000'000, 4, 1};
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(files[i].path, names[i]);
    EXPECT_EQ(files[i].bytes, bytes[i]);
  }
}

// In the cache of the Hugging Face hub, each file is a link.
TEST_F(TextFilesTest, FollowsLinks) {
  std::filesystem::create_directories(path("blobs"));
  std::filesystem::create_directories(path("snapshot"));
  write("blobs/1", "one");
  std::filesystem::create_symlink("../blobs/1", path("snapshot/a.txt"));
  std::filesystem::create_symlink("../blobs", path("snapshot/more"));
  std::filesystem::create_symlink("../blobs/9", path("snapshot/none"));
  std::vector<std::string> skipped;
  const std::vector<TextFile> files = find_text_files({path("snapshot")}, &skipped);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, path("snapshot/a.txt"));
  EXPECT_EQ(files[0].bytes, 3u);
  EXPECT_THAT(
      skipped,
      ElementsAre(cat(path("snapshot"),
                      ": 1 file is read; skipped: more (a directory), none (a dangling link)")));
}

TEST_F(TextFilesTest, SkipsFilesThatAreNoData) {
  std::filesystem::create_directory(path("d"));
  for (const char* name : {"train.txt~", "dataset_info.json", "state.json", "README.md",
                           ".gitattributes", ".nfs0001", "LICENSE"}) {
    write(cat("d/", name), "no data");
  }
  EXPECT_THAT(
      error_of([&] { find_text_files({path("d")}); }),
      AllOf(HasSubstr("no text found in the directory"),
            HasSubstr("README.md (a description of the data)"),
            HasSubstr("train.txt~ (created by a program)"), HasSubstr(".nfs0001 (hidden)")));
  write("d/train.txt", "data");
  EXPECT_EQ(find_text_files({path("d")}).size(), 1u);
}

TEST_F(TextFilesTest, JsonLinesMayHaveOtherNames) {
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  for (const char* name : {"a.jsonl", "a.JSONL", "a.json", "a.NDJson"}) {
    EXPECT_EQ(kind_of(write(name, lines)), DocumentKind::lines) << name;
  }
  EXPECT_EQ(kind_of(write("b.json", "{\n  \"text\": 1\n}\n")), DocumentKind::text);
  EXPECT_EQ(kind_of(write("c.json", "[1, 2]\n")), DocumentKind::text);
}

TEST_F(TextFilesTest, ReadsAllInBlocks) {
  std::string text;
  for (uint32_t i = 0; text.size() < 3'000'000; ++i) text += std::to_string(i);
  write("a", text);
  std::string found;
  int blocks = 0;
  read_texts(path("a"), [&](std::string_view block) {
    found += block;
    ++blocks;
  });
  EXPECT_EQ(found, text);
  EXPECT_GT(blocks, 1);
}

std::string text_in(const std::string& path) {
  std::string text;
  read_texts(path, [&](std::string_view part) { text += part; });
  return text;
}

TEST_F(TextFilesTest, TakesTheTextsOutOfJsonLines) {
  const std::string file = write(
      "a.jsonl", "{\"id\": 1, \"text\": \"one\\ntwo\"}\n\n{\"text\": \"é\"}\r\n{\"text\":\"\"}");
  EXPECT_EQ(text_in(file), "one\ntwo\né\n\n");
  // The text is longer than a block of the reader.
  const std::string longest(3'000'000, 'x');
  EXPECT_EQ(text_in(write("b.jsonl", "{\"text\":\"" + longest + "\"}\n")), longest + "\n");
}

TEST_F(TextFilesTest, SaysWhichJsonLineHasNoText) {
  const auto refusal = [&](const std::string& content) {
    const std::string file = write("a.jsonl", content);
    return error_of([&] { text_in(file); });
  };
  for (const char* second : {"{\"content\": \"x\"}", "{\"text\": 7}", "[1]", "plain", "{\"text"}) {
    EXPECT_THAT(refusal(std::string("{\"text\":\"good\"}\n") + second),
                AllOf(HasSubstr("line 2 of"), HasSubstr("a.jsonl"), HasSubstr("without .jsonl")))
        << second;
  }
}

TEST_F(TextFilesTest, ReadsCompressedFiles) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += std::to_string(i) + '\n';
  const auto gzip = [&](const std::string& name, const std::string& content) {
    const gzFile file = ::gzopen(path(name).c_str(), "wb");
    ::gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    ::gzclose(file);
    return path(name);
  };
  const auto zstd = [&](const std::string& name, const std::string& content) {
    std::string packed(ZSTD_compressBound(content.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 1));
    return write(name, packed + packed);  // two frames
  };
  EXPECT_EQ(text_in(gzip("a.txt.gz", text)), text);
  EXPECT_EQ(text_in(zstd("a.txt.zst", text)), text + text);
  EXPECT_EQ(text_in(gzip("a.jsonl.gz", "{\"text\":\"x\"}\n")), "x\n");
  EXPECT_EQ(text_in(zstd("a.jsonl.zst", "{\"text\":\"x\"}\n")), "x\nx\n");
  for (const char* name : {"a.txt.gz", "a.txt.zst"}) {
    std::filesystem::resize_file(path(name), std::filesystem::file_size(path(name)) - 100);
    EXPECT_THAT(
        error_of([&] { text_in(path(name)); }),
        AllOf(HasSubstr("cannot decompress"), HasSubstr(path(name)), HasSubstr("ends too")));
    write(name, read(name).replace(0, 4, "junk"));
  }
  EXPECT_THAT(error_of([&] { text_in(path("a.txt.zst")); }), HasSubstr("cannot decompress"));
}

TEST_F(TextFilesTest, PromptsAreNoTexts) {
  const std::string file = write("a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}");
  EXPECT_THAT(error_of([&] { text_in(file); }), HasSubstr("tutti tokenize"));
}

TEST_F(TextFilesTest, NamesTheError) {
  const auto refusal = [](const std::string& file) {
    return error_of([&] { find_text_files({file}); });
  };
  EXPECT_THAT(refusal(path("absent")), AllOf(HasSubstr(path("absent")), HasSubstr("No such file")));
  EXPECT_THAT(refusal(write("a", "")), AllOf(HasSubstr(path("a")), HasSubstr("empty")));
  EXPECT_THAT(refusal(write("a", std::string(9, '\0'))), HasSubstr("NUL bytes"));
  std::filesystem::create_directory(path("bare"));
  EXPECT_THAT(refusal(path("bare")), HasSubstr("no text found in the directory"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(path("pipe")), HasSubstr("neither a file nor a directory"));
}

}  // namespace
}  // namespace tutti::training
