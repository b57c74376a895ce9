#include "training/data/text_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/error.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class LoadTextTest : public testing::Test {
 public:
  LoadTextTest() {
    std::string pattern = testing::TempDir() + "/text_data_test.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LoadTextTest() override { fs::remove_all(folder_); }

 protected:
  std::string write(const std::string& name, const std::string& content) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  static std::string load(const std::vector<std::string>& paths) {
    const TextData text = load_text(paths);
    return {text.bytes.begin(), text.bytes.end()};
  }
  static std::string error_of(const std::vector<std::string>& paths) {
    try {
      load_text(paths);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(LoadTextTest, ConcatenatesFilesInSortedOrder) {
  const std::string a = write("a", std::string(100, 'a'));
  const std::string b = write("b", std::string(100, 'b'));
  EXPECT_EQ(load({b, a}), std::string(100, 'a') + std::string(100, 'b'));
}

TEST_F(LoadTextTest, TakesTheTextFilesOfADirectory) {
  write("2", std::string(100, 'b'));
  write("1", std::string(100, 'a'));
  write("1.dat", std::string("\0\1\2", 3));
  write("empty", "");
  fs::create_symlink(folder_ / "1", folder_ / "link");
  fs::create_directory(folder_ / "sub");
  write("sub/3", "c");
  EXPECT_EQ(load({folder_}), std::string(100, 'a') + std::string(100, 'b'));
}

TEST_F(LoadTextTest, HoldsOutTheLastTenth) {
  const TextData text = load_text({write("a", std::string(205, 'x'))});
  EXPECT_EQ(text.training_size, 185u);
  EXPECT_EQ(text.validation_size(), 20u);
}

TEST_F(LoadTextTest, NamesTheError) {
  const std::string missing = folder_ / "missing";
  EXPECT_THAT(error_of({missing}), HasSubstr(missing));
  EXPECT_THAT(error_of({missing}), HasSubstr("No such file"));
  EXPECT_THAT(error_of({write("empty", "")}), HasSubstr("is empty"));
  EXPECT_THAT(error_of({write("short", "hello")}), HasSubstr("too short"));
  EXPECT_THAT(error_of({write("binary", std::string(500, '\0'))}), HasSubstr("is not text"));
  fs::create_directory(folder_ / "bare");
  EXPECT_THAT(error_of({folder_ / "bare"}), HasSubstr("no text found in the directory"));
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of({pipe}), HasSubstr("neither a file nor a directory"));
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

TEST(BigramEntropyTest, KnownTextsHaveKnownEntropy) {
  EXPECT_EQ(bigram_entropy({}), 0);
  EXPECT_EQ(bigram_entropy(bytes_of("abababab")), 0);
  // After a come b, c, b and c; after b and after c comes a.
  EXPECT_NEAR(bigram_entropy(bytes_of("abacabaca")), 0.5 * std::log(2), 1e-12);
}

TEST(FingerprintTest, DistinguishesTexts) {
  EXPECT_EQ(split_text(bytes_of("ab")).fingerprint(), split_text(bytes_of("ab")).fingerprint());
  EXPECT_NE(split_text(bytes_of("ab")).fingerprint(), split_text(bytes_of("ba")).fingerprint());
}

}  // namespace
}  // namespace tutti::training
