// Tests which memory limit of a process's control groups applies. The files have the format in
// which the kernel writes them.
#include "base/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace tutti {
namespace {

namespace fs = std::filesystem;

class ContainerMemory : public ::testing::Test {
 protected:
  ContainerMemory() : root_(::testing::TempDir() + "groups" + std::to_string(::getpid())) {}
  ~ContainerMemory() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<uint64_t> limit() const { return container_memory(root_); }

  const fs::path root_;
};

TEST_F(ContainerMemory, IsTheLowestLimitUpToTheRoot) {
  write("proc/self/cgroup", "0::/batch/job\n");
  EXPECT_EQ(limit(), std::nullopt);
  write("sys/fs/cgroup/batch/job/memory.max", "max\n");
  EXPECT_EQ(limit(), std::nullopt);
  write("sys/fs/cgroup/batch/memory.max", "104857600\n");
  EXPECT_EQ(limit(), 104857600u);
  write("sys/fs/cgroup/batch/job/memory.max", "1048576\n");
  EXPECT_EQ(limit(), 1048576u);
}

TEST_F(ContainerMemory, ReadsControlGroupsOfVersion1) {
  write("proc/self/cgroup", "5:cpu,memory:/user\n0::/y\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit(), std::nullopt) << "a number so large is no limit";
  write("sys/fs/cgroup/memory/user/memory.limit_in_bytes", "104857600\n");
  EXPECT_EQ(limit(), 104857600u);
}

// In a container, the mount is the container's own group, although /proc shows its path on the
// host.
TEST_F(ContainerMemory, ReadsAGroupThatIsTheMount) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write("sys/fs/cgroup/memory.max", "104857600\n");
  EXPECT_EQ(limit(), 104857600u);
}

}  // namespace
}  // namespace tutti
