// tutti_init() with all options: the environment may say something else, or half of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bindings/c/tutti.h"

namespace {

class InitTest : public ::testing::Test {
 protected:
  InitTest() { ::setenv("WORLD_SIZE", "5", 1); }  // and no RANK
  ~InitTest() override { ::unsetenv("WORLD_SIZE"); }
};

TEST_F(InitTest, OptionsWinOverTheEnvironment) {
  const std::string file =
      std::filesystem::path(::testing::TempDir()) / ("tutti-init-" + std::to_string(::getpid()));
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&file, rank] {
      tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
      options.rank = rank;
      options.ranks = 2;
      options.rendezvous_file = file.c_str();
      tutti_comm_t* world = nullptr;
      EXPECT_EQ(tutti_init(&world, &options), TUTTI_OK) << tutti_error_text();
      EXPECT_EQ(tutti_rank(world), rank);
      EXPECT_EQ(tutti_size(world), 2);
      tutti_destroy(world);
    });
  }
}

TEST_F(InitTest, AloneNeedsNoPlace) {
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.ranks = 1;
  tutti_comm_t* world = nullptr;
  EXPECT_EQ(tutti_init(&world, &options), TUTTI_OK) << tutti_error_text();
  EXPECT_EQ(tutti_size(world), 1);
  tutti_destroy(world);
}

TEST_F(InitTest, WithoutOptionsHalfAnEnvironmentIsAnError) {
  tutti_comm_t* world = nullptr;
  EXPECT_EQ(tutti_init(&world, nullptr), TUTTI_BOOTSTRAP);
  EXPECT_NE(std::string(tutti_error_text()).find("WORLD_SIZE is set, but RANK is not"),
            std::string::npos);
}

}  // namespace
