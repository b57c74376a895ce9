// Tests memory in files: it keeps its contents, releases pages, and throws errors where the system
// would raise signals.
#include "training/offload/file_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "tests/training/data/folder.h"
#include "tests/training/offload/resident.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

using ::testing::Each;
using ::testing::HasSubstr;
using testing::resident_bytes;

constexpr size_t kBytes = size_t{1} << 20;

class FileMemories : public FolderTest {
 protected:
  // Truncates all open files of this process that are in the folder.
  void cut_off_files() const {
    const std::string folder = fs::canonical(path("")).string();
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = fs::read_symlink(entry.path(), error).string();
      if (!target.starts_with(folder)) continue;
      EXPECT_EQ(::truncate(entry.path().c_str(), 0), 0);
    }
  }
};

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(FileMemories, FilesStartAtZeroAndHaveNoName) {
  const FileMemory memory(path(""), kBytes + 5);
  EXPECT_EQ(memory.size(), kBytes + 5);
  EXPECT_THAT(std::span(memory.data(), memory.size()), Each(std::byte{0}));
  EXPECT_EQ(files(), 0U);
  EXPECT_TRUE(memory.contains(memory.data() + kBytes + 4));
  EXPECT_FALSE(memory.contains(memory.data() + kBytes + 5));
}

TEST_F(FileMemories, KeepTheirBytesWithoutMemory) {
  const FileMemory memory(path(""), kBytes);
  const std::span<std::byte> all(memory.data(), memory.size());
  auto* const numbers = reinterpret_cast<uint32_t*>(memory.data());
  const size_t count = kBytes / sizeof(uint32_t);
  std::iota(numbers, numbers + count, 1U);
  EXPECT_EQ(resident_bytes(all), kBytes);
  memory.start_writing(all);
  memory.evict(all);
  EXPECT_EQ(resident_bytes(all), 0U);
  memory.start_reading(all);
  memory.load(all, true);
  EXPECT_EQ(resident_bytes(all), kBytes);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(numbers[i], i + 1);
}

// Ranges may share a page. The page in which the evicted range ends is kept, because the next range
// uses it.
TEST_F(FileMemories, EvictWholePages) {
  const FileMemory memory(path(""), kBytes);
  const std::span<std::byte> all(memory.data(), memory.size());
  std::ranges::fill(all, std::byte{7});
  memory.evict(all.subspan(0, kBytes / 2 + 1));
  EXPECT_EQ(resident_bytes(all), kBytes / 2);
  memory.evict(all.subspan(kBytes / 2 + 1));
  EXPECT_EQ(resident_bytes(all), 0U);
  EXPECT_THAT(all, Each(std::byte{7}));
}

TEST_F(FileMemories, StoreWithoutTouchingPages) {
  const FileMemory memory(path(""), kBytes);
  const std::vector<std::byte> bytes(1000, std::byte{9});
  memory.store(bytes, memory.data() + 500);
  EXPECT_EQ(memory.data()[499], std::byte{0});
  EXPECT_THAT(std::span(memory.data() + 500, 1000), Each(std::byte{9}));
  EXPECT_EQ(memory.data()[1500], std::byte{0});
}

TEST_F(FileMemories, FullFileSystemsAreAnError) {
  EXPECT_THAT(error_of([&] { FileMemory(path("nowhere"), kBytes); }),
              ::testing::AllOf(HasSubstr("nowhere: No such file"), HasSubstr("--offload-dir")));
  struct ::statvfs disk {};
  ASSERT_EQ(::statvfs(path("").c_str(), &disk), 0);
  const size_t too_much = (disk.f_blocks + (size_t{1} << 20)) * disk.f_frsize;
  EXPECT_THAT(error_of([&] { FileMemory(path(""), too_much); }), HasSubstr("No space left"));
}

// A page beyond the end of its file cannot be read. Access to it raises SIGBUS, as on a failing
// disk.
TEST_F(FileMemories, UnreadableFilesAreAnError) {
  const FileMemory memory(path(""), kBytes);
  const std::span<std::byte> all(memory.data(), memory.size());
  memory.evict(all);
  cut_off_files();
  EXPECT_THAT(error_of([&] { memory.load(all, false); }), HasSubstr("cannot be read"));
  EXPECT_THAT(error_of([&] { memory.load(all, true); }), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace tutti::training
