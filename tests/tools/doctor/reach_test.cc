// Tests over the loopback interface whether hosts reach each other. Clients without the nonce get
// no answer.
#include "tools/doctor/reach.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {
namespace {

using bootstrap::Transfer;

const std::string kNonce(kNonceBytes, 'a');
const std::vector<Interface> kInterfaces = {{"lo", {"127.0.0.1"}, 65536, 0, true, true}};
constexpr std::chrono::seconds kPatience{60};  // time limit that only a hang exceeds

Target target_of(const Listeners& listeners) {
  return {.host = 1, .rail = 0, .there = listeners.rails().at(0), .own = ""};
}

Fd connected_to(const Listeners& listeners) {
  Fd socket;
  const auto address = bootstrap::resolve("127.0.0.1", listeners.rails().at(0).tcp_port);
  EXPECT_EQ(bootstrap::try_connect(address.front(), Deadline::after(kPatience), socket), 0);
  return socket;
}

TEST(Reach, FindsHostsWithTheNonce) {
  const Listeners listeners({"127.0.0.1"}, kInterfaces, 0, kNonce);
  EXPECT_EQ(listeners.rails().at(0).interface, "lo");
  EXPECT_EQ(listeners.rails().at(0).mtu, 65536);
  // Connects many at once, from the route's address and from an address of their own.
  std::vector<Target> targets(40, target_of(listeners));
  for (size_t i = 0; i < 20; ++i) targets[i].own = "127.0.0.1";
  const std::vector<Reach> reaches = try_all(0, targets, kInterfaces, kNonce);
  ASSERT_EQ(reaches.size(), targets.size());
  for (const Reach& reach : reaches) {
    EXPECT_EQ(reach.from, 0);
    EXPECT_EQ(reach.to, 1);
    EXPECT_EQ(reach.own, "127.0.0.1");
    EXPECT_EQ(reach.route_error, 0);
    EXPECT_EQ(reach.connect_error, 0);
    EXPECT_TRUE(reach.answered && reach.bulk);
    EXPECT_TRUE(reach.small_arrived && reach.full_arrived && reach.common_arrived);
  }
}

TEST(Reach, RejectsListenersWithAnotherNonce) {
  const Listeners listeners({"127.0.0.1"}, kInterfaces, 0, std::string(kNonceBytes, 'b'));
  const std::vector<Reach> reaches = try_all(0, {target_of(listeners)}, kInterfaces, kNonce);
  ASSERT_EQ(reaches.size(), 1u);
  EXPECT_EQ(reaches[0].connect_error, 0);
  EXPECT_FALSE(reaches[0].answered || reaches[0].bulk || reaches[0].small_arrived);
}

TEST(Reach, ReportsWhyThereIsNoConnection) {
  Target target;
  {
    const Listeners listeners({"127.0.0.1"}, kInterfaces, 0, kNonce);
    target = target_of(listeners);
  }
  const std::vector<Reach> reaches = try_all(0, {target}, kInterfaces, kNonce);
  ASSERT_EQ(reaches.size(), 1u);
  EXPECT_EQ(reaches[0].connect_error, ECONNREFUSED);
  EXPECT_FALSE(reaches[0].answered || reaches[0].small_arrived);
}

TEST(Reach, DropsStrangersAndContinues) {
  const Listeners listeners({"127.0.0.1"}, kInterfaces, 0, kNonce);
  const Fd silent = connected_to(listeners);
  const Fd loud = connected_to(listeners);
  const std::string noise = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(loud.get(), noise.data(), noise.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(noise.size()));
  std::array<std::byte, 1> answer;
  EXPECT_EQ(bootstrap::read_exactly(loud.get(), answer, Deadline::after(kPatience)),
            Transfer::closed);
  const std::vector<Reach> reaches = try_all(0, {target_of(listeners)}, kInterfaces, kNonce);
  ASSERT_EQ(reaches.size(), 1u);
  EXPECT_TRUE(reaches[0].answered && reaches[0].bulk && reaches[0].full_arrived);
}

}  // namespace
}  // namespace tutti::tool
