// Tests that the names and the contents of TUTTI_ALGORITHM_FILES must be equal on all ranks of a
// job. Ranks are processes in separate folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/collectives/interchange/xml.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the text of a file for a broadcast by two ranks from rank 0 in `chunks` chunks.
std::string broadcast(int chunks) {
  Xml xml("broadcast", 2, chunks, "inplace=\"1\" root=\"0\"");
  xml.gpu(chunks, 0, 0).tb(1, -1).step("s", "i0", "i0", chunks);
  xml.gpu(chunks, 0, 0).tb(-1, 0).step("r", "i0", "i0", chunks);
  return xml.text();
}

// Joins the job in `folder`, and broadcasts from rank 0, then from rank 1. Returns "right" or an
// error.
std::string outcome_of(const std::string& folder, const std::string& rendezvous, int rank) {
  try {
    std::filesystem::current_path(folder);
    settings().set("TUTTI_ALGORITHM_FILES", "mine.xml");
    Communicator comm = Communicator::init(testing::local_job(rank, 2, rendezvous, "token"));
    for (int root = 0; root < 2; ++root) {
      std::array<float, 1000> values;
      values.fill(static_cast<float>(comm.rank()));
      comm.broadcast(std::span<float>(values), root);
      for (const float value : values) {
        if (value != static_cast<float>(root)) return cat(value, " instead of ", root);
      }
    }
    return "right";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Runs two ranks whose algorithm files contain contents[0] and contents[1]. Returns what each rank
// reports: "right" or an error.
std::array<std::string, 2> run(const std::array<std::string, 2>& contents) {
  const std::string base = cat(::testing::TempDir(), "algorithm_files.", ::getpid());
  std::array<pid_t, 2> ranks = {};
  for (int rank = 0; rank < 2; ++rank) {
    const std::string folder = cat(base, '/', rank);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/mine.xml") << contents[rank];
    ranks[rank] = ::fork();
    if (ranks[rank] != 0) continue;
    std::ofstream(folder + "/said") << outcome_of(folder, base + "/rendezvous", rank);
    std::_Exit(0);
  }
  std::array<std::string, 2> said;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(::waitpid(ranks[rank], nullptr, 0), ranks[rank]);
    std::ifstream file(cat(base, '/', rank, "/said"));
    said[rank].assign(std::istreambuf_iterator<char>(file), {});
  }
  std::filesystem::remove_all(base);
  return said;
}

TEST(AlgorithmFiles, RanksWithEqualFilesUseThem) {
  EXPECT_THAT(run({broadcast(1), broadcast(1)}), ::testing::Each("right"));
}

TEST(AlgorithmFiles, DifferentFilesAreReportedByName) {
  for (const std::string& said : run({broadcast(1), broadcast(2)})) {
    EXPECT_THAT(said, AllOf(HasSubstr("rank 1"), HasSubstr("rank 0"), HasSubstr("mine.xml")));
  }
}

}  // namespace
}  // namespace tutti
