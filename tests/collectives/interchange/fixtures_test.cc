// Tests published algorithm files, if present: all must be proved, and damaged ones refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/proof/verify.h"
#include "tests/support/test_data.h"

namespace tutti {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class MscclFixtures : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = testing::test_data("msccl");
    if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".xml") files_.push_back(entry.path());
    }
    std::ranges::sort(files_);
    ASSERT_FALSE(files_.empty());
  }

  std::vector<std::filesystem::path> files_;
};

TEST_F(MscclFixtures, AllVerify) {
  for (const std::filesystem::path& file : files_) {
    SCOPED_TRACE(file);
    const Imported imported = read_msccl(contents(file), file);
    RecordProperty(imported.name, std::string(name(imported.grade)));
    EXPECT_GE(imported.grade, reduces(imported.collective) ? Grade::correct : Grade::canonical);
    EXPECT_EQ(static_cast<size_t>(imported.ranks), imported.programs.size());
    const Algorithm& algorithm = import_algorithm(file);
    EXPECT_EQ(algorithm.grade, imported.grade);
    if (!reduces(imported.collective)) continue;
    for (const Arithmetic arithmetic : {Arithmetic::means, Arithmetic::scaled}) {
      const Shape shape{.ranks = imported.ranks, .root = imported.root};
      const Verdict verdict = verify(algorithm, shape, arithmetic);
      EXPECT_EQ(verdict.problem, "");
      EXPECT_EQ(verdict.grade, imported.grade);
    }
  }
}

TEST_F(MscclFixtures, MissingLastLinesAreRefused) {
  for (const std::filesystem::path& file : files_) {
    const std::string text = contents(file);
    for (const double part : {0.1, 0.5, 0.9}) {
      EXPECT_THROW(
          read_msccl(text.substr(0, static_cast<size_t>(part * static_cast<double>(text.size()))),
                     file),
          Error)
          << file << ' ' << part;
    }
  }
}

// Replaces one number at a time by an absurd or a larger one. Each file must be accepted or refused
// quickly.
TEST_F(MscclFixtures, SurviveAbsurdNumbers) {
  for (const std::filesystem::path& file : files_) {
    const std::string text = contents(file);
    if (text.size() > 50000) continue;
    for (const char* attribute :
         {"ngpus", "nchunksperloop", "id", "i_chunks", "o_chunks", "s_chunks", "send", "recv",
          "chan", "s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep"}) {
      const std::string start = std::string(" ") + attribute + "=\"";
      const size_t from = text.find(start);
      if (from == std::string::npos) continue;
      const size_t value = from + start.size();
      const size_t end = text.find('"', value);
      for (const char* absurd : {"-1", "2000000000", "-9223372036854775809", "65536", "", "1"}) {
        std::string changed = text;
        changed.replace(value, end - value, absurd);
        try {
          EXPECT_GE(read_msccl(changed, file).grade, Grade::correct);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
        }
      }
    }
  }
}

TEST_F(MscclFixtures, AMissingMessageIsRefused) {
  for (const std::filesystem::path& file : files_) {
    const std::string text = contents(file);
    const size_t type = text.find("type=\"s\"", text.size() / 2);
    if (type == std::string::npos) continue;
    std::string changed = text;
    changed.replace(type, 8, "type=\"nop\"");
    EXPECT_THROW(read_msccl(changed, file), Error) << file;
  }
}

}  // namespace
}  // namespace tutti
