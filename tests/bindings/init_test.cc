// Tests tutti_init() with all options, while the environment is contradictory or incomplete.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bindings/c/tutti.h"

namespace {

class InitTest : public ::testing::Test {
 protected:
  InitTest() { ::setenv("WORLD_SIZE", "5", 1); }  // RANK is not set
  ~InitTest() override { ::unsetenv("WORLD_SIZE"); }
  static void SetUpTestSuite() { ::setenv("TUTTI_INIT_TIMEOUT", "4", 1); }
};

TEST_F(InitTest, OptionsOverrideTheEnvironment) {
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

// One thread begins to join for several ranks.
TEST_F(InitTest, SeveralRanksCanBegin) {
  constexpr int kRanks = 3;
  const std::string file =
      std::filesystem::path(::testing::TempDir()) / ("tutti-begin-" + std::to_string(::getpid()));
  std::vector<tutti_joining_t*> joining(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
    options.rank = rank;
    options.ranks = kRanks;
    options.rendezvous_file = file.c_str();
    ASSERT_EQ(tutti_init_begin(&joining[rank], &options), TUTTI_OK) << tutti_error_text();
  }
  std::vector<tutti_comm_t*> ranks(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(tutti_init_end(joining[rank], &ranks[rank]), TUTTI_OK) << tutti_error_text();
  }
  std::vector<int32_t> values = {1, 10, 100};
  ASSERT_EQ(tutti_group_begin(), TUTTI_OK);
  for (int rank = 0; rank < kRanks; ++rank) {
    const tutti_buffer_t buffer = tutti_host(&values[rank], 1, TUTTI_I32);
    ASSERT_EQ(tutti_all_reduce(ranks[rank], buffer, buffer, TUTTI_SUM, nullptr), TUTTI_OK);
  }
  ASSERT_EQ(tutti_group_end(), TUTTI_OK) << tutti_error_text();
  EXPECT_EQ(values, (std::vector<int32_t>{111, 111, 111}));
  for (int rank = kRanks - 1; rank >= 0; --rank) tutti_destroy(ranks[rank]);
}

// A key-value store implemented by the test.
struct Store {
  std::mutex mutex;
  std::map<std::string, std::string> values;
  bool broken = false;

  static Store& from(void* context) { return *static_cast<Store*>(context); }
  static int set(const char* key, const char* value, void* context) {
    const std::lock_guard lock(from(context).mutex);
    from(context).values[key] = value;
    return 0;
  }
  static int get(const char* key, char* value, size_t bytes, void* context) {
    const std::lock_guard lock(from(context).mutex);
    if (from(context).broken) return -7;
    const auto found = from(context).values.find(key);
    if (found == from(context).values.end()) return 0;
    EXPECT_LT(found->second.size(), bytes);
    std::strncpy(value, found->second.c_str(), bytes);
    return 1;
  }
  static void remove(const char* key, void* context) {
    const std::lock_guard lock(from(context).mutex);
    from(context).values.erase(key);
  }
  tutti_store_t functions() {
    return {
        .size = sizeof(tutti_store_t), .set = set, .get = get, .remove = remove, .context = this};
  }
};

TEST_F(InitTest, RanksMeetInTheCallersStore) {
  Store store;
  const tutti_store_t functions = store.functions();
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&functions, rank] {
        tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
        options.rank = rank;
        options.ranks = 3;
        options.store = &functions;
        tutti_comm_t* world = nullptr;
        ASSERT_EQ(tutti_init(&world, &options), TUTTI_OK) << tutti_error_text();
        EXPECT_EQ(tutti_rank(world), rank);
        EXPECT_EQ(tutti_size(world), 3);
        tutti_destroy(world);
      });
    }
  }
  EXPECT_TRUE(store.values.empty());  // rank 0's address was removed
}

TEST_F(InitTest, TimeoutNamesTheFailingStore) {
  Store store;
  store.broken = true;
  tutti_store_t functions = store.functions();
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.rank = 1;
  options.ranks = 2;
  options.store = &functions;
  options.timeout = 0.2;
  tutti_comm_t* world = nullptr;
  EXPECT_EQ(tutti_init(&world, &options), TUTTI_BOOTSTRAP);
  EXPECT_NE(std::string(tutti_error_text()).find("get(\"rank0\") returned -7"), std::string::npos)
      << tutti_error_text();
  functions.get = nullptr;
  EXPECT_EQ(tutti_init(&world, &options), TUTTI_INVALID_ARGUMENT);
}

TEST_F(InitTest, EndReturnsTheErrorOfAFailedBegin) {
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.ranks = 2;
  options.rank = 1;
  options.master_address = "not a host name";
  options.master_port = 1;
  tutti_joining_t* joining = nullptr;
  ASSERT_EQ(tutti_init_begin(&joining, &options), TUTTI_OK) << tutti_error_text();
  tutti_comm_t* world = nullptr;
  EXPECT_EQ(tutti_init_end(joining, &world), TUTTI_BOOTSTRAP);
  EXPECT_EQ(world, nullptr);
  EXPECT_NE(std::string(tutti_error_text()).find("not a host name"), std::string::npos);
  EXPECT_EQ(tutti_init_end(nullptr, &world), TUTTI_INVALID_ARGUMENT);
}

TEST_F(InitTest, SingleRankNeedsNoRendezvous) {
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.ranks = 1;
  tutti_comm_t* world = nullptr;
  EXPECT_EQ(tutti_init(&world, &options), TUTTI_OK) << tutti_error_text();
  EXPECT_EQ(tutti_size(world), 1);
  tutti_destroy(world);
}

TEST_F(InitTest, IncompleteEnvironmentIsAnError) {
  tutti_comm_t* world = nullptr;
  EXPECT_EQ(tutti_init(&world, nullptr), TUTTI_BOOTSTRAP);
  EXPECT_NE(std::string(tutti_error_text()).find("WORLD_SIZE is set, but RANK is not"),
            std::string::npos);
}

}  // namespace
