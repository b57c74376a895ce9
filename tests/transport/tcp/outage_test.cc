// That a network which goes away is noticed is in tests/tools/cli/rails_test.cc.
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

namespace tutti {
namespace {

constexpr int64_t kLong = 60'000'000'000;
constexpr std::chrono::seconds kLongest{10};

TEST(Outage, IsNotAReaderThatIsMerelySlow) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  ASSERT_EQ(::bind(listener.get(), raw, length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), raw, &length), 0);
  const Fd writer(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(writer.get(), raw, length), 0);
  const Fd reader(::accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(reader);
  const std::vector<char> bytes(1 << 20);
  while (::send(writer.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  Outage outage;
  const int64_t now = now_ns();
  EXPECT_EQ(outage.look(writer.get(), now, kLongest), "");
  EXPECT_EQ(outage.look(writer.get(), now + kLong, kLongest), "");
}

TEST(Outage, IsNotSeenOnWhatIsNoTcp) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const Fd here(ends[0]);
  const Fd there(ends[1]);
  EXPECT_EQ(Outage().look(here.get(), kLong, kLongest), "");
}

}  // namespace
}  // namespace tutti
