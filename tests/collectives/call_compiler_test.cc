// Tests how requests are compiled, without a communicator.
#include "collectives/runtime/calls/call_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/request.h"

namespace tutti::internal {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;
const Limits kLimits = Limits::of_one_path(1, 4, {1 << 16, 1 << 16});

class CallCompilerTest : public ::testing::Test {
 protected:
  CallCompilerTest() : compiler_(1, kRanks, [this](int, bool) { return &message_; }) {
    Plans::Kind kind;
    kind.shape = {
        .ranks = kRanks, .rank = 1, .root = 0, .layout = Layout::of(std::vector<Place>(kRanks))};
    kind.hosts = Hosts::of(std::vector<Place>(kRanks));
    kind.limits = kLimits;
    kind.any_shm = true;
    const auto plans = std::make_shared<Plans>(kind, CostModel{}, std::vector<const Algorithm*>{});
    compiler_.use(plans, plans);
  }

  Request sum(size_t count, ReduceOp op = ReduceOp::sum) {
    return Request::all_reduce({in_.data(), count, DType::f32}, {out_.data(), count, DType::f32},
                               op);
  }
  std::string refusal(const Request& request, const CallOptions& options) {
    try {
      compiler_.compiled(request, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  std::array<float, 64> in_{};
  std::array<float, 64> out_{};
  Plan message_;
  CallCompiler compiler_;
};

TEST_F(CallCompilerTest, KeepsCallsOfOneKind) {
  const auto first = compiler_.compiled(sum(8), {});
  EXPECT_EQ(compiler_.compiled(sum(8), {}), first);
  EXPECT_EQ(compiler_.compiled(sum(8), {.algorithm = "auto"}), first);
  EXPECT_NE(compiler_.compiled(sum(9), {}), first);
  EXPECT_NE(compiler_.compiled(sum(8, ReduceOp::max), {}), first);
  EXPECT_NE(compiler_.compiled(sum(8), {.algorithm = "ring"}), first);
}

// With many ranks on a host, slots in shared memory are short. Messages to other hosts may be
// longer.
TEST_F(CallCompilerTest, MessagesToOtherHostsHaveTheLengthOfTheNetwork) {
  Program program;
  program.steps = {send({0}, {input(0)})};
  message_ = make_plan(Collective::send_recv, {.ranks = kRanks, .rank = 1}, std::move(program));
  Plans::Kind kind;
  kind.shape = {.ranks = kRanks, .rank = 1};
  kind.hosts = Hosts::equal(kRanks, 2);
  kind.limits = {.slots = 4, .near = {1 << 16, 256}, .far = {1 << 16, 4096}};
  for (const bool any_shm : {true, false}) {
    kind.any_shm = any_shm;
    if (!any_shm) kind.limits.near = kind.limits.far;
    const auto plans = std::make_shared<Plans>(kind, CostModel{}, std::vector<const Algorithm*>{});
    CallCompiler fresh(1, kRanks, [this](int, bool) { return &message_; });
    fresh.use(plans, plans);
    const ConstBuffer bytes{in_.data(), 1 << 14, DType::u8};
    const auto slices_to = [&](int peer) {
      return fresh.compiled(Request::send(bytes, peer), {})->slicing.slices;
    };
    EXPECT_EQ(slices_to(0), any_shm ? 64U : 4U) << "on its own host";
    EXPECT_EQ(slices_to(2), 4U) << "on another";
    EXPECT_EQ(slices_to(3), 4U);
  }
}

TEST_F(CallCompilerTest, UsesTheNamedAlgorithm) {
  EXPECT_EQ(compiler_.compiled(sum(8), {.algorithm = "ring"})->algorithm->name, "ring");
  EXPECT_EQ(compiler_.named_algorithm(sum(8), {.algorithm = "ring"}, false)->name, "ring");
  EXPECT_EQ(compiler_.named_algorithm(sum(8), {}, false), nullptr);
  EXPECT_THAT(refusal(sum(8), {.algorithm = "rign"}), HasSubstr("rign"));
}

TEST_F(CallCompilerTest, DeterministicCallsUseOnlyCanonicalAlgorithms) {
  EXPECT_FALSE(compiler_.must_be_canonical(sum(8), {}));
  const CallOptions deterministic{.deterministic = true};
  EXPECT_TRUE(compiler_.must_be_canonical(sum(8), deterministic));
  EXPECT_EQ(compiler_.compiled(sum(8), deterministic)->algorithm->grade, Grade::canonical);
  EXPECT_THAT(refusal(sum(8), {.algorithm = "ring", .deterministic = true}),
              HasSubstr("a deterministic call requires a canonical algorithm"));
}

TEST_F(CallCompilerTest, AMessageRunsThePlanOfItsPeer) {
  const Request send = Request::send({in_.data(), 3, DType::f32}, 2);
  const auto compiled = compiler_.compiled(send, {.tag = 5});
  EXPECT_EQ(compiled->plan, &message_);
  EXPECT_EQ(compiled->peer, 2);
  EXPECT_EQ(compiled->tag, 5);
  EXPECT_TRUE(compiled->sends);
  EXPECT_THAT(refusal(send, {.tag = kAnyTag}), HasSubstr("tag"));
}

TEST_F(CallCompilerTest, ARefusedCallIsNotKept) {
  const Request wrong =
      Request::broadcast({in_.data(), 4, DType::f32}, {out_.data(), 4, DType::f32}, 9);
  EXPECT_THAT(refusal(wrong, {}), HasSubstr("root"));
  EXPECT_THAT(refusal(wrong, {}), HasSubstr("root"));
}

TEST(CallCompiler, AJobOfOneRankNeedsNoPlan) {
  CallCompiler alone(0, 1, [](int, bool) { return nullptr; });
  float value = 1;
  const Request sum =
      Request::all_reduce({&value, 1, DType::f32}, {&value, 1, DType::f32}, ReduceOp::sum);
  EXPECT_EQ(alone.compiled(sum, {})->plan, nullptr);
  EXPECT_EQ(alone.compiled(sum, {})->algorithm, nullptr);
  EXPECT_THROW(alone.compiled(sum, {.algorithm = "rign"}), Error) << "wrong on one rank, too";
}

}  // namespace
}  // namespace tutti::internal
