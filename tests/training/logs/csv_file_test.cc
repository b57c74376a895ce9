#include "training/logs/csv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "base/file_text.h"
#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

class CsvFileTest : public FolderTest {
 protected:
  const std::vector<std::string> columns_ = {"loss", "lr"};
};

TEST_F(CsvFileTest, NamesThenNumbers) {
  CsvFile file(path("a.csv"), columns_, std::nullopt);
  file.write({1, {{"lr", 0.1}, {"loss", 2.5}}});
  file.write({2, {{"loss", std::numeric_limits<double>::quiet_NaN()}}});
  file.write({3, {{"loss", 1e-300}}});
  EXPECT_EQ(file_text(path("a.csv"), FileKind::losses),
            "step,loss,lr\n1,2.5,0.1\n2,,\n3,1e-300,\n");
}

TEST_F(CsvFileTest, ANewRunBeginsAnewWithItsFirstLine) {
  write("a.csv", "step,loss,lr\n1,2,3\n");
  CsvFile file(path("a.csv"), columns_, std::nullopt);
  EXPECT_EQ(file_text(path("a.csv"), FileKind::losses), "step,loss,lr\n1,2,3\n");
  file.write({1, {{"loss", 4}}});
  EXPECT_EQ(file_text(path("a.csv"), FileKind::losses), "step,loss,lr\n1,4,\n");
}

TEST_F(CsvFileTest, AResumedRunAppendsAfterTheLastWholeLine) {
  write("a.csv", "step,loss,lr\n1,2,3\n2,0.");
  CsvFile file(path("a.csv"), columns_, 1);
  file.write({2, {{"loss", 4}}});
  EXPECT_EQ(file_text(path("a.csv"), FileKind::losses), "step,loss,lr\n1,2,3\n2,4,\n");
  // A new file begins with the names of the columns.
  CsvFile other(path("b.csv"), columns_, 4);
  other.write({5, {{"lr", 1}}});
  EXPECT_EQ(file_text(path("b.csv"), FileKind::losses), "step,loss,lr\n5,,1\n");
}

TEST_F(CsvFileTest, DropsLinesOfRepeatedSteps) {
  write("a.csv", "step,loss,lr\n1,2,3\n2,2,3\n2,,4\n3,2,3\n10,2,3\n");
  CsvFile file(path("a.csv"), columns_, 2);
  EXPECT_THAT(file_text(path("a.csv"), FileKind::losses), HasSubstr("10,2,3")) << "not yet";
  file.write({3, {{"loss", 4}}});
  file.write({4, {{"loss", 5}}});
  EXPECT_EQ(file_text(path("a.csv"), FileKind::losses),
            "step,loss,lr\n1,2,3\n2,2,3\n2,,4\n3,4,\n4,5,\n");
}

TEST_F(CsvFileTest, LeavesFilesWithOtherColumnsAlone) {
  write("a.csv", "step,accuracy\n1,2\n");
  EXPECT_THAT(error_of([&] { CsvFile(path("a.csv"), columns_, 1); }),
              HasSubstr("different columns"));
  EXPECT_EQ(file_text(path("a.csv"), FileKind::losses), "step,accuracy\n1,2\n");
}

TEST_F(CsvFileTest, ReportsAFileThatCannotBeWritten) {
  EXPECT_THAT(error_of([&] { CsvFile(path("none/a.csv"), columns_, std::nullopt); }),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace tutti::training
