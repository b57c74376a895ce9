#include "transport/tcp/congestion.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/fd.h"
#include "tests/transport/tcp/loopback.h"

namespace tutti {
namespace {

std::string control_of(const Fd& socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), 0);
  return name.data();
}

// Connects to this host with the congestion control `before`, and calls avoid_pacing(). Returns the
// congestion control afterwards, or "" if the system does not allow `before`.
std::string after(const std::string& before) {
  const LoopbackListener listener;
  const Fd writer = listener.connect();
  if (::setsockopt(writer.get(), IPPROTO_TCP, TCP_CONGESTION, before.data(),
                   static_cast<socklen_t>(before.size())) != 0) {
    return "";
  }
  EXPECT_EQ(control_of(writer), before);
  avoid_pacing(writer.get());
  return control_of(writer);
}

TEST(Congestion, ConnectionsWithinAHostAreNotPaced) {
  const std::string control = after("bbr");
  if (control.empty()) GTEST_SKIP() << "bbr is not here";
  EXPECT_NE(control, "bbr");
}

TEST(Congestion, AlgorithmsThatDoNotPaceAreKept) { EXPECT_EQ(after("reno"), "reno"); }

}  // namespace
}  // namespace tutti
