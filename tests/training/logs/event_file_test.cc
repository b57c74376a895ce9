#include "training/logs/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tests/support/process.h"
#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;
using tutti::testing::Process;
using tutti::testing::Result;

class EventFileTest : public FolderTest {
 protected:
  // Decodes with a Python script that shares no code with the writer.
  static std::vector<Json> events(const std::string& directory) {
    const Result result =
        Process({"python3", "tests/training/logs/read_events.py", directory}).finish();
    EXPECT_EQ(result.code, 0) << result.err;
    std::vector<Json> events;
    for (const std::string& line : split(result.out, '\n')) {
      if (!line.empty()) events.push_back(Json::parse(line));
    }
    return events;
  }
};

// Sources of the values: RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST_F(EventFileTest, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_F(EventFileTest, AnotherReaderFindsTheSameNumbers) {
  EventFile file(path("board"), false);
  file.write({1, {{"loss", 2.5}, {"lr", 0.125}}});
  file.write({300, {{"loss", -1e30}, {"no number", std::numeric_limits<double>::quiet_NaN()}}});
  const std::vector<Json> found = events(path("board"));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].at("version"), "brain.Event:2");
  EXPECT_EQ(found[1].at("step"), 1);
  EXPECT_EQ(found[1].at("scalars"), Json({{"loss", 2.5}, {"lr", 0.125}}));
  EXPECT_EQ(found[2].at("step"), 300);
  EXPECT_EQ(found[2].at("scalars"), Json({{"loss", static_cast<double>(-1e30f)}}));
  EXPECT_GE(found[2].at("wall_time"), found[1].at("wall_time").get<double>());
}

TEST_F(EventFileTest, AResumedRunRecordsWhereItResumes) {
  EventFile file(path("board"), true);
  file.write({7, {{"loss", 1}}});
  const std::vector<Json> found = events(path("board"));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].at("step"), 7);
  EXPECT_EQ(found[1].at("status"), 1) << "START";
}

TEST_F(EventFileTest, NothingIsThereBeforeThereIsSomethingToSay) {
  EventFile file(path("board"), false);
  EXPECT_TRUE(std::filesystem::is_empty(path("board")));
}

TEST_F(EventFileTest, ReportsADirectoryThatCannotBeMade) {
  write("file", "mine");
  EXPECT_THAT(error_of([&] { EventFile(path("file/board"), false); }), HasSubstr("file/board"));
}

}  // namespace
}  // namespace tutti::training
