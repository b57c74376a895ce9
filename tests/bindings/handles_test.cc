// Tests the C interface's handles on calls: their validity and their deadlines.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "bindings/c/tutti.h"

namespace {

// A job of one rank, in which a receive from itself stays in flight until the rank sends.
class HandlesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ::setenv("TUTTI_TIMEOUT", "0.2", 1); }
  void SetUp() override { ASSERT_EQ(tutti_init(&world_, nullptr), TUTTI_OK) << tutti_error_text(); }
  void TearDown() override { tutti_destroy(world_); }

  tutti_work_t* receive(const tutti_call_options_t* options) {
    tutti_work_t* work = nullptr;
    EXPECT_EQ(tutti_recv_async(world_, tutti_host(&value_, 1, TUTTI_I32), 0, options, &work),
              TUTTI_OK)
        << tutti_error_text();
    return work;
  }

  tutti_comm_t* world_ = nullptr;
  int32_t value_ = -7;
};

TEST_F(HandlesTest, ZeroTimeoutUsesTheSetting) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  tutti_work_t* const work = receive(&options);
  EXPECT_EQ(tutti_wait(work), TUTTI_TIMEOUT) << tutti_error_text();
  tutti_work_free(work);
}

TEST_F(HandlesTest, InfiniteTimeoutNeverExpires) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.timeout = INFINITY;
  tutti_work_t* const work = receive(&options);
  int done = 1;
  EXPECT_EQ(tutti_wait_for(work, 0.6, &done), TUTTI_OK) << tutti_error_text();
  EXPECT_EQ(done, 0);
  const int32_t sent = 5;
  EXPECT_EQ(tutti_send(world_, tutti_host(&sent, 1, TUTTI_I32), 0, nullptr), TUTTI_OK);
  EXPECT_EQ(tutti_wait(work), TUTTI_OK) << tutti_error_text();
  EXPECT_EQ(value_, 5);
  tutti_work_free(work);
}

TEST_F(HandlesTest, NegativeTimeoutIsRefused) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.timeout = -1;
  EXPECT_EQ(tutti_barrier(world_, &options), TUTTI_INVALID_ARGUMENT);
}

TEST_F(HandlesTest, WorksMayOutliveTheirCommunicator) {
  tutti_work_t* const work = receive(nullptr);
  tutti_destroy(world_);
  world_ = nullptr;
  int done = 1;
  EXPECT_EQ(tutti_test(work, &done), TUTTI_ABORTED);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(tutti_wait(work), TUTTI_ABORTED);
  EXPECT_EQ(tutti_work_abort(work, "too late"), TUTTI_ABORTED);
  tutti_work_free(work);
  EXPECT_EQ(value_, -7);
}

TEST_F(HandlesTest, PreparedCallsDoNotStartWithoutTheirCommunicator) {
  tutti_request_t request = TUTTI_REQUEST_INIT;
  request.collective = TUTTI_RECV;
  request.output = tutti_host(&value_, 1, TUTTI_I32);
  tutti_prepared_t* prepared = nullptr;
  ASSERT_EQ(tutti_prepare(world_, &request, nullptr, &prepared), TUTTI_OK) << tutti_error_text();
  tutti_destroy(world_);
  world_ = nullptr;
  tutti_work_t* work = nullptr;
  EXPECT_EQ(tutti_prepared_start(prepared, &work), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tutti_error_text()).find("is destroyed"), std::string::npos)
      << tutti_error_text();
  tutti_prepared_free(prepared);
}

}  // namespace
