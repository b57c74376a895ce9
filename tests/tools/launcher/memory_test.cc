// Tests that the launcher names the kernel's out-of-memory killer. Uses files like those of the
// kernel and, if a test may create a control group, the real kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tests/tools/launcher/start.h"
#include "tools/launcher/memory_events.h"

namespace tutti::tool {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class MemoryEvents : public ::testing::Test {
 protected:
  MemoryEvents() : root_(::testing::TempDir() + "memory" + std::to_string(::getpid())) {
    write("proc/vmstat", "pgfault 9\noom_kill 5\nnr_free 3\n");
  }
  ~MemoryEvents() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void second_version(const std::string& group, int kills) const {
    write("proc/self/cgroup", "0::" + group + "\n");
    write(cat("sys/fs/cgroup", group, "/memory.events"),
          cat("low 0\nhigh 0\nmax 31\noom 2\noom_kill ", kills, "\noom_group_kill 0\n"));
  }

  const fs::path root_;
};

TEST_F(MemoryEvents, NameAControlGroup) {
  second_version("/batch/job", 3);
  write("sys/fs/cgroup/batch/job/memory.max", "max\n");
  write("sys/fs/cgroup/batch/memory.max", "67108864\n");
  write("sys/fs/cgroup/batch/memory.peak", "67100000\n");
  OutOfMemoryWatch watch(root_);
  EXPECT_EQ(watch.explain(1), "") << "what was counted before is not ours";
  second_version("/batch/job", 4);
  EXPECT_EQ(watch.explain(1),
            "by the kernel's out-of-memory killer (limit of its control group: 64 MiB, peak use: "
            "64 MiB)");
  EXPECT_EQ(watch.explain(1), "") << "told already";
  second_version("/batch/job", 5);
  EXPECT_EQ(watch.explain(0), "") << "a process that is none of the job";
  second_version("/batch/job", 6);
  EXPECT_THAT(watch.explain(2), AllOf(HasSubstr("probably by"), HasSubstr("1 of 2 processes")));
}

TEST_F(MemoryEvents, ReadTheFirstVersion) {
  write("proc/self/cgroup", "5:cpu,memory:/user\n1:name=systemd:/x\n0::/y\n");
  const auto kills = [&](int count) {
    write("sys/fs/cgroup/memory/user/memory.oom_control",
          cat("oom_kill_disable 0\nunder_oom 0\noom_kill ", count, "\n"));
  };
  kills(0);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/user/memory.limit_in_bytes", "104857600\n");
  write("sys/fs/cgroup/memory/user/memory.max_usage_in_bytes", "104857600\n");
  OutOfMemoryWatch watch(root_);
  kills(2);
  EXPECT_EQ(watch.explain(2),
            "by the kernel's out-of-memory killer (limit of its control group: 100 MiB, peak use: "
            "100 MiB)");
}

// The container's own group is mounted, although /proc shows the host's path for it.
TEST_F(MemoryEvents, ReadAGroupThatIsTheMount) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
  OutOfMemoryWatch watch(root_);
  write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  EXPECT_EQ(watch.explain(1), "by the kernel's out-of-memory killer");
}

TEST_F(MemoryEvents, CountTheWholeHost) {
  second_version("/", 0);
  OutOfMemoryWatch watch(root_);
  EXPECT_EQ(watch.explain(1), "");
  write("proc/vmstat", "oom_kill 7\n");
  EXPECT_EQ(
      watch.explain(1),
      "probably by the kernel's out-of-memory killer, which ended 2 processes of this host at "
      "that time");
}

TEST_F(MemoryEvents, ReportNothingWithoutFiles) {
  fs::remove_all(root_);
  EXPECT_EQ(OutOfMemoryWatch(root_).explain(1), "");
}

// A control group with a limit, which a shell joins.
class Group {
 public:
  Group() {
    const bool second = fs::exists("/sys/fs/cgroup/cgroup.controllers");
    path_ = cat("/sys/fs/cgroup/", second ? "" : "memory/", "tutti-test-", ::getpid());
    std::error_code error;
    if (!fs::create_directory(path_, error)) return;
    constexpr const char* kLimit = "67108864";
    if (second) {
      limited_ = write("memory.max", kLimit);
      write("memory.swap.max", "0");
    } else {
      limited_ = write("memory.limit_in_bytes", kLimit);
      write("memory.memsw.limit_in_bytes", kLimit);
    }
  }
  ~Group() {
    std::error_code error;
    fs::remove(path_, error);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool limited() const { return limited_; }
  std::string processes() const { return path_ / "cgroup.procs"; }

 private:
  bool write(const std::string& name, const std::string& text) const {
    std::ofstream file(path_ / name);
    return static_cast<bool>(file << text << std::flush);
  }

  fs::path path_;
  bool limited_ = false;
};

TEST(OutOfMemory, LauncherAndRanksReportIt) {
  const Group group;
  if (!group.limited()) GTEST_SKIP() << "no control group may be made here";
  const std::string rank =  // one line of 200 MiB, which is kept until its end
      "if [ $RANK = 1 ]; then exec tail < <(head -c 200M /dev/zero) > /dev/null; fi; "
      "read -r -u $TUTTI_LAUNCHER_FD notice; echo \"$notice\"; exit 1";
  Process process({"bash", "-c", "echo $$ > \"$0\" && exec \"$@\"", group.processes(),
                   launcher_path(), "2", "-", "1", "bash", "-c", rank});
  const Result result = process.finish();
  EXPECT_EQ(result.code, 137) << result.err;
  const std::string why =
      "by the kernel's out-of-memory killer \\(limit of its control group: 64 MiB, peak use: "
      "[0-9]+ MiB\\)\n";
  EXPECT_THAT(result.out, ContainsRegex("\\[0\\] signal 1 [0-9]+ 9 " + why));
  EXPECT_THAT(result.err,
              ContainsRegex("rank 1 \\([^)]*\\) was killed by signal 9 \\(Killed\\) " + why));
}

}  // namespace
}  // namespace tutti::tool
