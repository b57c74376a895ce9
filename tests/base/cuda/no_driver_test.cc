// Tests the error on a host without NVIDIA's driver.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "base/cuda/api.h"
#include "base/cuda/device.h"
#include "base/error.h"

namespace tutti::cuda {
namespace {

TEST(NoDriver, NamesTheDriverToInstall) {
  if (::dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this host has the driver";
  EXPECT_FALSE(available());
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      device_count();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      const std::string text = error.what();
      EXPECT_NE(text.find("libcuda.so.1"), std::string::npos) << text;
      EXPECT_NE(text.find("install the driver"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tutti::cuda
