#include "training/data/token_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenFormat kGpt2{.vocabulary = 50257, .end_of_text = 50256};

// Returns the bytes of a file in llm.c's format.
std::string token_file(std::vector<int32_t> header, const std::vector<uint16_t>& tokens) {
  header.resize(256);
  std::string bytes(header.size() * 4 + tokens.size() * 2, '\0');
  std::memcpy(bytes.data(), header.data(), header.size() * 4);
  if (!tokens.empty()) {
    std::memcpy(bytes.data() + header.size() * 4, tokens.data(), tokens.size() * 2);
  }
  return bytes;
}

class TokenFileTest : public FolderTest {
 protected:
  void expect_refused(const std::string& content, const std::string& cause) const {
    const std::string file = write("wrong.bin", content);
    EXPECT_THAT(error_of([&] { const TokenFile tokens(file); }),
                AllOf(HasSubstr(file), HasSubstr(cause)));
  }
};

TEST_F(TokenFileTest, ReadsTheFormatByteForByte) {
  std::string bytes(1024, '\0');
  const std::string head("\x88\xd8\x34\x01\x01\0\0\0\x02\0\0\0", 12);  // 0x0134d888 = 20240520
  bytes.replace(0, head.size(), head);
  bytes += std::string("\x34\x12\xff\xff", 4);
  const TokenFile file(write("a.bin", bytes));
  EXPECT_THAT(file.tokens(), ElementsAre(0x1234, 0xffff));
}

TEST_F(TokenFileTest, ReadsAFileWithoutTokens) {
  EXPECT_THAT(TokenFile(write("a.bin", token_file({20240520, 1, 0}, {}))).tokens(), IsEmpty());
}

TEST_F(TokenFileTest, OutlivesTheFilesNameAndMoves) {
  const std::string name = write("a.bin", token_file({20240520, 1, 3}, {7, 8, 9}));
  TokenFile first(name);
  std::filesystem::remove(name);
  const TokenFile second = std::move(first);
  EXPECT_THAT(second.tokens(), ElementsAre(7, 8, 9));
}

TEST_F(TokenFileTest, ReportsAFileThatIsCutWhileItIsRead) {
  const std::string name =
      write("a.bin", token_file({20240520, 1, 5000}, std::vector<uint16_t>(5000, 7)));
  const TokenFile file(name);
  std::vector<int32_t> tokens(10);
  file.read(4990, tokens);
  EXPECT_THAT(tokens, ::testing::Each(7));
  std::filesystem::resize_file(name, 1024 + 2 * 1000 + 1);
  EXPECT_THAT(error_of([&] { file.read(4990, tokens); }),
              AllOf(HasSubstr(name), HasSubstr("was truncated during the run"),
                    HasSubstr("truncated or rewrote")));
  EXPECT_THAT(error_of([&] { file.read(995, tokens); }), HasSubstr("was truncated during the run"));
  EXPECT_THAT(error_of([&] { (void)file.tokens(); }), HasSubstr("was truncated during the run"));
  file.read(990, tokens);
}

TEST_F(TokenFileTest, RefusesMalformedFiles) {
  const std::string good = token_file({20240520, 1, 2}, {7, 8});
  expect_refused("", "the file has 0 bytes, but its header alone requires 1024");
  expect_refused(good.substr(0, 1023), "the file has 1023 bytes");
  expect_refused(token_file({1, 1, 2}, {7, 8}), "its magic number is 1, not 20240520 or 20240801");
  expect_refused(token_file({20240801, 1, 2}, {7, 8}), "version is 1, not 7");
  expect_refused(token_file({20240801, 7, 1}, {7, 8, 9}), "6 bytes after its header");
  expect_refused(token_file({20240520, 2, 2}, {7, 8}), "version is 2, not 1");
  expect_refused(token_file({20240520, 1, 3}, {7, 8}), "specifies 3 tokens, but the file has 2");
  expect_refused(token_file({20240520, 1, 1}, {7, 8}), "specifies 1 tokens, but the file has 2");
  expect_refused(token_file({20240520, 1, -1}, {}), "specifies -1 tokens, but the file has 0");
  expect_refused(good.substr(0, good.size() - 1), "not a multiple of the 2");
  EXPECT_THAT(error_of([&] { const TokenFile file(path("absent")); }),
              AllOf(HasSubstr(path("absent")), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { const TokenFile file(path("")); }), HasSubstr("not a regular file"));
}

TEST_F(TokenFileTest, WritesWhatLlmcReads) {
  TokenWriter writer(path("a.bin"), kGpt2);
  writer.write(std::vector<int32_t>{1, 2});
  writer.write({});
  writer.write(std::vector<int32_t>{50256});
  EXPECT_EQ(writer.count(), 3u);
  writer.finish();
  const std::string wanted = token_file({20240520, 1, 3}, {1, 2, 50256});
  EXPECT_EQ(read("a.bin").substr(0, 12), wanted.substr(0, 12));
  EXPECT_EQ(read("a.bin").substr(1024), wanted.substr(1024));
  EXPECT_EQ(files(), 1u);
}

TEST_F(TokenFileTest, LargeVocabulariesTake32Bits) {
  for (const bool marks : {false, true}) {
    const TokenFormat format{
        .vocabulary = 128256, .end_of_text = 128001, .marks_unpredicted = marks};
    const std::vector<int32_t> tokens = {1, marks ? unpredicted(2) : 2, 128255};
    TokenWriter writer(path("a.bin"), format);
    writer.write(tokens);
    writer.finish();
    int32_t head[3];
    const std::string bytes = read("a.bin");
    std::memcpy(head, bytes.data(), sizeof(head));
    EXPECT_THAT(head, ElementsAre(20240801, marks ? 107 : 7, 3)) << "llm.c refuses version 107";
    EXPECT_EQ(bytes.size(), 1024u + 12);
    const TokenFile file(path("a.bin"));
    EXPECT_EQ(file.tokens(), tokens);
    EXPECT_EQ(file.summary().format.vocabulary, 128256);
    EXPECT_EQ(file.summary().format.end_of_text, 128001);
    EXPECT_EQ(file.summary().format.marks_unpredicted, marks);
  }
  EXPECT_EQ(id_of(unpredicted(7)), 7);
  EXPECT_FALSE(is_predicted(unpredicted(0)));
}

TEST_F(TokenFileTest, LlmcHeadersDetermineTheFormat) {
  const auto format = [&](std::vector<int32_t> header, const std::vector<uint16_t>& tokens) {
    header.push_back(static_cast<int32_t>(tokens.size()) / (header[1] == 7 ? 2 : 1));
    return TokenFile(write("a.bin", token_file(header, tokens))).summary().format;
  };
  EXPECT_EQ(format({20240520, 1}, {1, 300}).vocabulary, 50257) << "GPT-2's";
  EXPECT_EQ(format({20240520, 1}, {1, 300}).end_of_text, 50256);
  EXPECT_EQ(format({20240520, 1}, {1, 255}).vocabulary, 256) << "bytes";
  EXPECT_EQ(format({20240520, 1}, {1, 255}).end_of_text, std::nullopt);
  EXPECT_EQ(format({20240520, 1}, {1, 60000}).vocabulary, 60001) << "another one";
  EXPECT_EQ(format({20240801, 7}, {1, 1}).vocabulary, 128256) << "Llama 3's";
  EXPECT_EQ(format({20240801, 7}, {1, 1}).end_of_text, 128000);
}

// Uses a sparse file that is too large to be read completely.
TEST_F(TokenFileTest, SamplesBlocksAllOverALargeFile) {
  const int32_t count = 100'000'000;
  const auto summary = [&](uint64_t place, char low) {
    const std::string name = write("a.bin", token_file({20240520, 1, count}, {300}));
    std::filesystem::resize_file(name, 1024 + 2 * uint64_t{count});
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(1024 + 2 * place));
    file.put(low);
    file.close();
    return TokenFile(name).summary();
  };
  EXPECT_EQ(summary(5, 1).format.vocabulary, 50257);
  EXPECT_EQ(summary(5, 1).fingerprint, summary(5, 1).fingerprint);
  EXPECT_NE(summary(5, 1).fingerprint, summary(5, 2).fingerprint);
  EXPECT_NE(summary(count - 1, 1).fingerprint, summary(count - 1, 2).fingerprint);
}

// The vocabulary must be large enough even for tokens outside the sampled blocks.
TEST_F(TokenFileTest, ReadsAllOfALargeFileOfAnotherTokenizer) {
  const uint64_t count = 10'000'000;
  const auto vocabulary = [&](uint32_t first, uint32_t hidden) {
    const std::string name = write("a.bin", token_file({20240801, 7, int32_t{count}}, {}));
    std::filesystem::resize_file(name, 1024 + 4 * count);
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](uint64_t place, uint32_t token) {
      file.seekp(static_cast<std::streamoff>(1024 + 4 * place));
      file.write(reinterpret_cast<const char*>(&token), sizeof token);
    };
    put(0, first);
    // A position after the first block of 64 KiB and before the second sampled one.
    put(25'000, hidden);
    file.close();
    return TokenFile(name).summary().format.vocabulary;
  };
  EXPECT_EQ(vocabulary(150'000, 151'642), 151'643);
  EXPECT_EQ(vocabulary(151'642, 150'000), 151'643);
  EXPECT_EQ(vocabulary(128'000, 300), 128'256) << "Llama 3's";
}

TEST_F(TokenFileTest, TheHeaderHasAChecksum) {
  const auto fingerprint = [&](int32_t token) {
    TokenWriter writer(path("a.bin"), kGpt2);
    writer.write(std::vector<int32_t>{1, token});
    writer.finish();
    return TokenFile(path("a.bin")).summary().fingerprint;
  };
  EXPECT_EQ(fingerprint(2), fingerprint(2));
  EXPECT_NE(fingerprint(2), fingerprint(3));
}

TEST_F(TokenFileTest, AnOlderFileStaysUntilTheEnd) {
  write("a.bin", "older");
  {
    TokenWriter writer(path("a.bin"), kGpt2);
    writer.write(std::vector<int32_t>{1, 2});
    EXPECT_EQ(read("a.bin"), "older");
    EXPECT_THAT(error_of([&] { const TokenFile file(path("a.bin.partial")); }),
                HasSubstr("magic number is 0"))
        << "a kill here leaves nothing that could be taken for the whole";
  }
  EXPECT_EQ(read("a.bin"), "older");
  EXPECT_EQ(files(), 1u) << "given up, so nothing is left";
}

TEST_F(TokenFileTest, TheWriterRefusesInvalidFiles) {
  EXPECT_THAT(error_of([&] { TokenWriter writer(path("absent/a.bin"), kGpt2); }),
              AllOf(HasSubstr(path("absent/a.bin")), HasSubstr("No such file")));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { TokenWriter writer(path("pipe"), kGpt2); }),
              AllOf(HasSubstr(path("pipe")), HasSubstr("not a regular file")));
}

TEST_F(TokenFileTest, TheWriterReportsAFullDisk) {
  // A link to the device that is always full represents a full disk.
  std::filesystem::create_symlink("/dev/full", path("a.bin.partial"));
  TokenWriter writer(path("a.bin"), kGpt2);
  EXPECT_THAT(error_of([&] { writer.write(std::vector<int32_t>{1}); }),
              AllOf(HasSubstr(path("a.bin.partial")), HasSubstr("No space left")));
}

}  // namespace
}  // namespace tutti::training
