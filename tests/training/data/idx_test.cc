#include "training/data/idx.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "tests/support/test_data.h"
#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two images of 2 x 3.
const std::string kImages =
    std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03", 16) + "abcdefghijkl";
const std::string kLabels = std::string("\0\0\x08\x01\0\0\0\x02", 8) + "\x07\xff";

class IdxTest : public FolderTest {
 protected:
  std::string write_gzip(const std::string& name, const std::string& content) const {
    gzFile file = ::gzopen(path(name).c_str(), "wb");
    ::gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    ::gzclose(file);
    return path(name);
  }
  void expect_refused(const std::string& file, const std::string& cause) const {
    EXPECT_THAT(error_of([&] { read_idx_images(file); }), AllOf(HasSubstr(file), HasSubstr(cause)));
  }
};

TEST_F(IdxTest, ReadsPlainAndCompressedFiles) {
  for (const std::string& file : {write("plain", kImages), write_gzip("gzip", kImages)}) {
    const IdxImages images = read_idx_images(file);
    EXPECT_EQ(images.count, 2u);
    EXPECT_EQ(images.rows, 2u);
    EXPECT_EQ(images.columns, 3u);
    EXPECT_THAT(images.image(1), ElementsAre('g', 'h', 'i', 'j', 'k', 'l'));
  }
  for (const std::string& file : {write("plain", kLabels), write_gzip("gzip", kLabels)}) {
    EXPECT_THAT(read_idx_labels(file), ElementsAre(7, 255));
  }
}

TEST_F(IdxTest, NamesTheError) {
  expect_refused(path("absent"), "No such file");
  expect_refused(write("a", ""), "ends inside its header");
  expect_refused(write("a", kImages.substr(0, 3)), "ends inside its header");
  expect_refused(write("a", kImages.substr(0, 15)), "ends inside its header");
  expect_refused(write("a", "text, not images"), "does not start with two zero bytes");
  expect_refused(write("a", kLabels), "the file has 1 dimension; images have 3");
  expect_refused(write("a", kImages.substr(0, 20)), "specifies 12 bytes, but the file has 4");
  expect_refused(write("a", kImages + "x"), "continues after the 12 bytes");
  std::string floats = kImages;
  floats[2] = 0x0d;
  expect_refused(write("a", floats), "of type 13");
  std::string huge = kImages;
  std::fill_n(huge.begin() + 4, 12, '\xff');
  expect_refused(write("a", huge), "specifies 4294967295 images");
  std::fill_n(huge.begin() + 4, 8, '\x01');
  std::fill_n(huge.begin() + 12, 4, '\0');
  huge[15] = 1;
  expect_refused(write("a", huge), "but the file has 12");
}

TEST_F(IdxTest, NamesDamagedCompressedData) {
  const std::string file = write_gzip("a", kImages);
  const std::string good = read("a");
  expect_refused(write("a", good.substr(0, good.size() - 6)), "end of file");
  std::string damaged = good;
  damaged[damaged.size() - 8] ^= 1;  // a byte of the checksum
  expect_refused(write("a", damaged), "data");
}

TEST(MnistTest, HasItsKnownCounts) {
  const std::filesystem::path folder = testing::test_data("datasets/mnist");
  if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
  const IdxImages images = read_idx_images(folder / "t10k-images-idx3-ubyte.gz");
  EXPECT_EQ(images.count, 10000u);
  EXPECT_EQ(images.rows, 28u);
  EXPECT_EQ(images.columns, 28u);
  EXPECT_EQ(images.pixels.size(), 10000u * 28 * 28);
  const std::vector<uint8_t> labels = read_idx_labels(folder / "train-labels-idx1-ubyte.gz");
  EXPECT_EQ(labels.size(), 60000u);
  EXPECT_THAT(std::vector<uint8_t>(labels.begin(), labels.begin() + 5), ElementsAre(5, 0, 4, 1, 9));
  EXPECT_EQ(std::ranges::count(labels, 1), 6742);
}

}  // namespace
}  // namespace tutti::training
