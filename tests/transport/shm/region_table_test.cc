#include "transport/shm/region_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace tutti::shm {
namespace {

// Two ranks of one host. Each has a part of the same file.
class RegionTables : public ::testing::Test {
 protected:
  static constexpr uint64_t kPart = uint64_t{64} << 20;
  static constexpr uint64_t kStart = uint64_t{2} << 20;

  RegionTables() {
    Fd memory(::memfd_create("region_table_test", MFD_CLOEXEC));
    if (::ftruncate(memory.get(), kStart + 2 * kPart) != 0) throw std::runtime_error("ftruncate");
    file_ = std::make_shared<const Fd>(std::move(memory));
    for (const int rank : {0, 1}) tables_.push_back(make_table(rank));
  }

  std::unique_ptr<RegionTable> make_table(int rank) const {
    const Extent first{kStart, kPart};
    const uint64_t own = kStart + static_cast<uint64_t>(rank) * kPart;
    const Extent rest{own + kDirectoryBytes, kPart - kDirectoryBytes};
    return std::make_unique<RegionTable>(file_, std::vector<int>{0, 1}, first, rank,
                                         std::make_shared<Heap>(file_, rest));
  }

  static void detach(const Region& region) { region.at<Header>(0)->detached.fetch_add(1); }
  uint64_t bytes_of_memory() const {
    struct stat status {};
    ::fstat(file_->get(), &status);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }

  std::shared_ptr<const Fd> file_;
  std::vector<std::unique_ptr<RegionTable>> tables_;
  const Geometry geometry_{2, 2};
};

TEST_F(RegionTables, OthersFindRegionsUntilTheyAreWithdrawn) {
  EXPECT_EQ(tables_[1]->find(7, 0, geometry_), nullptr);
  const auto made = tables_[0]->create(7, geometry_);
  const auto found = tables_[1]->find(7, 0, geometry_);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(tables_[1]->find(8, 0, geometry_), nullptr) << "another communicator";
  EXPECT_EQ(tables_[1]->find(7, 1, geometry_), nullptr) << "another owner";
  made->at<Header>(0)->detached.store(2);
  EXPECT_EQ(found->at<Header>(0)->detached.load(), 2u);
  tables_[0]->withdraw(7);
  EXPECT_EQ(tables_[1]->find(7, 0, geometry_), nullptr);
}

TEST_F(RegionTables, OtherProcessesFindRegions) {
  const auto made = tables_[0]->create(7, geometry_);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto found = make_table(1)->find(7, 0, geometry_);
    if (found != nullptr) found->at<Header>(0)->detached.store(99);
    ::_exit(found != nullptr ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(made->at<Header>(0)->detached.load(), 99u);
}

// The part of a rank has room for about thirty of these regions.
TEST_F(RegionTables, RoomIsReusedWhenAllHaveReleasedIt) {
  const size_t last = geometry_.total_bytes() - 1;
  uint64_t memory = 0;
  for (uint64_t id = 1; id <= 200; ++id) {
    auto region = tables_[0]->create(id, geometry_);
    const auto other = tables_[1]->find(id, 0, geometry_);
    ASSERT_EQ(*region->at<std::byte>(last), std::byte{0}) << "room that was used before";
    *region->at<std::byte>(last) = std::byte{1};
    tables_[0]->withdraw(id);
    detach(*region);
    detach(*other);
    region.reset();
    tables_[0]->give_back(id);
    if (id == 10) memory = bytes_of_memory();
  }
  EXPECT_LE(bytes_of_memory(), memory) << "memory grows";
}

TEST_F(RegionTables, RoomIsNotReusedBeforeAllHaveReleasedIt) {
  const size_t last = geometry_.total_bytes() - 1;
  auto region = tables_[0]->create(1, geometry_);
  const auto other = tables_[1]->find(1, 0, geometry_);
  *other->at<std::byte>(last) = std::byte{1};
  detach(*region);
  region.reset();
  tables_[0]->withdraw(1);
  tables_[0]->give_back(1);
  for (uint64_t id = 2; id <= 5; ++id) {
    const auto next = tables_[0]->create(id, geometry_);
    EXPECT_EQ(*next->at<std::byte>(last), std::byte{0});
    *next->at<std::byte>(last) = std::byte{2};
  }
  EXPECT_EQ(*other->at<std::byte>(last), std::byte{1});
}

TEST_F(RegionTables, TooManyRegionsAreRefused) {
  std::vector<std::shared_ptr<Region>> regions;
  try {
    for (uint64_t id = 1; id <= 1000; ++id) regions.push_back(tables_[0]->create(id, geometry_));
    FAIL() << "64 MiB are not enough for them";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
  }
  EXPECT_GE(regions.size(), 20u);
  detach(*regions[0]);
  detach(*regions[0]);
  tables_[0]->withdraw(1);
  tables_[0]->give_back(1);
  EXPECT_NE(tables_[0]->create(2000, geometry_), nullptr);
}

}  // namespace
}  // namespace tutti::shm
