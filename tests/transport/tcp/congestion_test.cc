#include "transport/tcp/congestion.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/fd.h"

namespace tutti {
namespace {

std::string control_of(const Fd& socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), 0);
  return name.data();
}

// What a connection to this host, with that congestion control, has after avoid_pacing(); empty:
// the system does not let us choose it.
std::string after(const std::string& before) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  EXPECT_EQ(::bind(listener.get(), raw, length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), raw, &length), 0);
  const Fd writer(::socket(AF_INET, SOCK_STREAM, 0));
  if (::setsockopt(writer.get(), IPPROTO_TCP, TCP_CONGESTION, before.data(),
                   static_cast<socklen_t>(before.size())) != 0) {
    return "";
  }
  EXPECT_EQ(::connect(writer.get(), raw, length), 0);
  EXPECT_EQ(control_of(writer), before);
  avoid_pacing(writer.get());
  return control_of(writer);
}

TEST(Congestion, NobodyNearIsPaced) {
  const std::string control = after("bbr");
  if (control.empty()) GTEST_SKIP() << "bbr is not here";
  EXPECT_NE(control, "bbr");
}

TEST(Congestion, WhatDoesNotPaceStays) { EXPECT_EQ(after("reno"), "reno"); }

}  // namespace
}  // namespace tutti
