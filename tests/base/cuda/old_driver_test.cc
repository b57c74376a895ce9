// Tests the error of a driver that is too old.
#include <gtest/gtest.h>

#include "base/cuda/api.h"
#include "base/error.h"

namespace tutti::cuda {
namespace {

TEST(OldDriver, NamesTheMissingFunctions) {
  EXPECT_FALSE(available());
  try {
    api();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string text = error.what();
    EXPECT_NE(text.find("lacks cuInit"), std::string::npos) << text;
    EXPECT_NE(text.find("update NVIDIA's driver"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tutti::cuda
