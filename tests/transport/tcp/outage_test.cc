// tests/tools/cli/rails_test.cc tests that the outage of a network is detected.
#include "transport/tcp/outage.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "tests/transport/tcp/loopback.h"

namespace tutti {
namespace {

constexpr int64_t kLong = 60'000'000'000;
constexpr std::chrono::seconds kLongest{10};

TEST(Outage, IsNotReportedForASlowReader) {
  const LoopbackListener listener;
  const Fd writer = listener.connect();
  const Fd reader = listener.accept();
  ASSERT_TRUE(reader);
  const std::vector<char> bytes(1 << 20);
  while (::send(writer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  Outage outage;
  const int64_t now = now_ns();
  EXPECT_EQ(outage.look(writer.get(), now, kLongest), "");
  EXPECT_EQ(outage.look(writer.get(), now + kLong, kLongest), "");
}

TEST(Outage, OtherSocketsReportNone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const Fd here(ends[0]);
  const Fd there(ends[1]);
  EXPECT_EQ(Outage().look(here.get(), kLong, kLongest), "");
}

}  // namespace
}  // namespace tutti
