#include "topology/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace tutti {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string fake_library() {
  return std::filesystem::absolute("tests/topology/libfake_nvml.so").string();
}

TEST(Nvml, FindsLinksBetweenGpusAndToSwitches) {
  const std::vector<NvmlGpu> gpus = probe_nvml(fake_library());
  ASSERT_THAT(gpus, SizeIs(4));
  for (size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_EQ(gpus[i].compute_capability, 90);
    ASSERT_THAT(gpus[i].links, SizeIs(2)) << i;
    EXPECT_EQ(gpus[i].links[0].peer, NvmlPeer::gpu);
    EXPECT_EQ(gpus[i].links[0].bus, gpus[i ^ 1].bus);
    EXPECT_EQ(gpus[i].links[0].count, 2);
    EXPECT_EQ(gpus[i].links[1].peer, NvmlPeer::nvlink_switch);
    EXPECT_EQ(gpus[i].links[1].count, 1);
  }
  EXPECT_EQ(gpus[2].bus, "0000:1c:00.0");
}

TEST(Nvml, IsNotNeeded) { EXPECT_THAT(probe_nvml("libnvidia-none.so.1"), IsEmpty()); }

// The library has the right name, but is another library or too old.
TEST(Nvml, LibrariesWithoutTheFunctionsAreIgnored) {
  EXPECT_THAT(probe_nvml("libc.so.6"), IsEmpty());
}

}  // namespace
}  // namespace tutti
