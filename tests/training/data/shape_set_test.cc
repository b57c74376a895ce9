#include "training/data/shape_set.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

TEST(ShapeSetTest, IsNamedByItsSizes) {
  const auto options = ShapeSet::parse("shapes:32x48:100:7");
  EXPECT_EQ(options.height, 32);
  EXPECT_EQ(options.width, 48);
  EXPECT_EQ(options.count, 100u);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(ShapeSet::parse("shapes:4x8192").count, ShapeSet::Options().count);
  for (const char* name : {"shapes:", "shapes:32", "shapes:32x", "shapes:3x32", "shapes:32x8193",
                           "shapes:32x32:0", "shapes:32x32:-1", "shapes:32x32:8:1:1",
                           "shapes:32x32x32", "shapes:99999999999999999999x32"}) {
    EXPECT_THAT(error_of([&] { ShapeSet::parse(name); }), HasSubstr("shapes:HEIGHTxWIDTH")) << name;
  }
}

TEST(ShapeSetTest, EachPixelHasItsClass) {
  const ShapeSet set({.height = 24, .width = 16, .count = 40}, true);
  EXPECT_EQ(set.size(), 40u);
  EXPECT_EQ(set.validation_size(), 5u);
  std::set<int32_t> classes;
  for (uint64_t example = 0; example < set.size(); ++example) {
    Batch batch;
    set.add(example, 0, batch);
    ASSERT_EQ(batch.targets.size(), 24u * 16);
    ASSERT_EQ(batch.features.size(), 24u * 16);
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      const bool is_shape = batch.targets[i] > 0;
      EXPECT_EQ(is_shape, batch.features[i] > 0.45f);  // the background's noise ends at 0.4
      EXPECT_LE(batch.features[i], 1.0f);
    }
    classes.insert(batch.targets.begin(), batch.targets.end());
  }
  EXPECT_EQ(classes, (std::set<int32_t>{0, 1, 2, 3}));
}

TEST(ShapeSetTest, IsAFunctionOfItsSeed) {
  const auto image = [](uint64_t seed, uint64_t example, bool validation = false) {
    const ShapeSet set({.height = 8, .width = 8, .count = 10, .seed = seed}, true);
    Batch batch;
    validation ? set.add_validation(example, batch) : set.add(example, 3, batch);
    return batch.features;
  };
  EXPECT_EQ(image(1, 2), image(1, 2));
  EXPECT_NE(image(1, 2), image(2, 2));
  EXPECT_NE(image(1, 2), image(1, 3));
  EXPECT_NE(image(1, 2), image(1, 2, true));
  const auto fingerprint = [](const ShapeSet::Options& options, bool pixels) {
    return ShapeSet(options, pixels).fingerprint();
  };
  EXPECT_NE(fingerprint({.seed = 1}, true), fingerprint({.seed = 2}, true));
  EXPECT_NE(fingerprint({.seed = 1}, true), fingerprint({.seed = 1}, false));
}

// The class is the shape that covers most of the image. It is never the background.
TEST(ShapeSetTest, AWholeImageHasOneClass) {
  const ShapeSet set({.height = 16, .width = 16, .count = 50}, false);
  const ShapeSet pixels({.height = 16, .width = 16, .count = 50}, true);
  for (uint64_t example = 0; example < 50; ++example) {
    Batch one, all;
    set.add(example, 0, one);
    pixels.add(example, 0, all);
    ASSERT_EQ(one.targets.size(), 1u);
    EXPECT_GT(one.targets.front(), 0);
    const auto count = [&](int32_t kind) { return std::ranges::count(all.targets, kind); };
    for (const int32_t kind : {1, 2, 3}) EXPECT_GE(count(one.targets.front()), count(kind));
  }
}

}  // namespace
}  // namespace tutti::training
