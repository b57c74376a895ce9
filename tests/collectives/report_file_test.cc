#include "collectives/runtime/waiting/report_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tutti::internal {
namespace {

// The process prints an error and exits without destroying the file.
TEST(ReportFile, SurvivesTheEndOfTheProcess) {
  const std::string path = ::testing::TempDir() + "/report.json";
  const std::string text(64 << 20, 'x');
  const auto write_and_end = [&] {
    (new ReportFile)->write(path, text);
    std::exit(3);
  };
  EXPECT_EXIT(write_and_end(), ::testing::ExitedWithCode(3), "");
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(std::filesystem::file_size(path), text.size());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tutti::internal
