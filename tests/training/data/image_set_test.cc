#include "training/data/image_set.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ImageSetTest : public FolderTest {
 protected:
  // Writes consecutive byte values, beginning with `first`.
  void write_idx(const std::string& name, const std::vector<int>& dimensions, int first = 0) const {
    std::string content = {0, 0, 8, static_cast<char>(dimensions.size())};
    int count = 1;
    for (const int dimension : dimensions) {
      content += {0, 0, 0, static_cast<char>(dimension)};
      count *= dimension;
    }
    for (int i = 0; i < count; ++i) content += static_cast<char>(first + i);
    write(name, content);
  }
  void write_images() const {
    write_idx("train-images-idx3-ubyte", {2, 2, 3});
    write_idx("t10k-images-idx3-ubyte", {1, 2, 3});
  }
};

TEST_F(ImageSetTest, ImagesHaveLabels) {
  write_images();
  write_idx("train-labels-idx1-ubyte", {2}, 4);
  write_idx("t10k-labels-idx1-ubyte", {1}, 7);
  const ImageSet set(path(""));
  EXPECT_EQ(set.classes(), 8);
  Batch batch;
  set.add(1, 0, batch);
  EXPECT_THAT(batch.targets, ElementsAre(5));
  EXPECT_THAT(set.labels(), ElementsAre(4, 5));
}

TEST_F(ImageSetTest, PixelsMayHaveLabels) {
  write_images();
  write_idx("train-masks-idx3-ubyte", {2, 2, 3}, 1);
  write_idx("t10k-masks-idx3-ubyte", {1, 2, 3}, 9);
  const ImageSet set(path(""), true);
  EXPECT_EQ(set.classes(), 15);
  Batch batch;
  set.add(1, 0, batch);
  EXPECT_THAT(batch.targets, ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_EQ(batch.features.size(), 6u);
  EXPECT_THAT(set.labels(), IsEmpty());
}

TEST_F(ImageSetTest, MasksHaveTheImagesSize) {
  write_images();
  EXPECT_THAT(error_of([&] { ImageSet(path(""), true); }), HasSubstr("train-masks-idx3-ubyte"));
  write_idx("train-masks-idx3-ubyte", {2, 3, 2});
  EXPECT_THAT(error_of([&] { ImageSet(path(""), true); }),
              HasSubstr("the images are 2 of 2 x 3, but the masks are 2 of 3 x 2"));
}

}  // namespace
}  // namespace tutti::training
