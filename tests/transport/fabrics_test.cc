// Tests which fabric a job chooses.
#include "transport/paths/fabrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/text.h"
#include "tests/support/fabrics.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Transports, HaveTheMeaningOfTheirNames) {
  const auto as_text = [](const std::string& text) {
    const Transports t = parse_transports(text);
    return cat(t.near_by_shm ? "shm" : "-", t.only_shm ? " only " : " ", t.fabric);
  };
  EXPECT_EQ(as_text("auto"), "shm auto");
  EXPECT_EQ(as_text("shm"), "shm only tcp");
  EXPECT_EQ(as_text("tcp"), "- tcp");
  EXPECT_EQ(as_text("ucx"), "- ucx");
  EXPECT_EQ(as_text("ofi"), "- ofi");
  EXPECT_EQ(as_text("shm+tcp"), "shm tcp");
  EXPECT_EQ(as_text("shm+ucx"), "shm ucx");
  EXPECT_EQ(as_text("shm+ofi"), "shm ofi");
}

// Files about network cards, laid out as in Linux's /sys.
class Candidates : public ::testing::Test {
 protected:
  Candidates() : sys_(fs::path(::testing::TempDir()) / cat("sys-", ::getpid())) {
    fs::create_directories(sys_);
  }
  ~Candidates() override { fs::remove_all(sys_); }

  void add_card(const std::string& name, const std::string& state, bool is_hardware = true) {
    const fs::path card = sys_ / "class/infiniband" / name;
    fs::create_directories(card / "ports/1");
    std::ofstream(card / "ports/1/state") << state << "\n";
    if (is_hardware) fs::create_directories(card / "device");
  }
  std::vector<std::string> found() const { return fabric_candidates(sys_); }

  fs::path sys_;
};

TEST_F(Candidates, AreEmptyWithoutACard) { EXPECT_THAT(found(), IsEmpty()); }

TEST_F(Candidates, PreferUcxForVerbs) {
  add_card("mlx5_0", "1: DOWN");
  EXPECT_THAT(found(), IsEmpty()) << "no port is up";
  add_card("mlx5_1", "4: ACTIVE");
  EXPECT_THAT(found(), ElementsAre("ucx", "ofi"));
}

TEST_F(Candidates, OfferOnlyLibfabricForEfa) {
  add_card("efa_0", "4: ACTIVE");
  EXPECT_THAT(found(), ElementsAre("ofi"));
}

TEST_F(Candidates, OfferOnlyLibfabricForSlingshot) {
  fs::create_directories(sys_ / "class/cxi/cxi0");
  EXPECT_THAT(found(), ElementsAre("ofi"));
}

TEST_F(Candidates, ExcludeSoftwareOverEthernet) {
  add_card("rxe0", "4: ACTIVE", false);
  EXPECT_THAT(found(), IsEmpty());
}

TEST(OpenFabric, OpensNothingForTcpOrOneRank) {
  EXPECT_EQ(open_fabric("tcp", Job{.size = 2}, {}).driver, nullptr);
  EXPECT_EQ(open_fabric("ucx", Job{.size = 1}, {}).driver, nullptr);
}

std::string opened(const MeasuredFabrics& measured) {
  return open_fabric("auto", Job{.size = 2}, measured).name;
}

TEST(OpenFabric, OpensTheFastestMeasuredFabric) {
  for (const PathClass fabric : {PathClass::ucx, PathClass::ofi}) {
    const std::string name(tutti::name(fabric));
    if (!testing::lacks(name).empty()) continue;
    EXPECT_EQ(opened(std::vector<PathClass>{fabric}), name);
  }
  EXPECT_EQ(opened(std::vector<PathClass>{}), "") << "TCP was";
}

}  // namespace
}  // namespace tutti
