// TCP connections within this host.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd.h"

namespace tutti {

class LoopbackListener {
 public:
  LoopbackListener() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    auto* const raw = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(::bind(listener_.get(), raw, length), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener_.get(), raw, &length), 0);
  }

  Fd connect() const {
    Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
    const auto* const raw = reinterpret_cast<const sockaddr*>(&address_);
    EXPECT_EQ(::connect(socket.get(), raw, sizeof(address_)), 0);
    return socket;
  }
  Fd accept() const { return Fd(::accept(listener_.get(), nullptr, nullptr)); }

 private:
  const Fd listener_{::socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in address_{};
};

}  // namespace tutti
