#include "transport/tcp/congestion.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti {

namespace {

constexpr uint32_t kNearUs = 1000;

}  // namespace

void avoid_pacing(int socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0 ||
      !std::string_view(name.data()).starts_with("bbr")) {
    return;
  }
  tcp_info info{};
  length = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      info.tcpi_min_rtt >= kNearUs) {
    return;
  }
  // Tries these in order. An unprivileged program may choose only what the system allows, which
  // always includes Reno.
  for (const std::string_view other : {"cubic", "reno"}) {
    if (::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, other.data(),
                     static_cast<socklen_t>(other.size())) == 0) {
      return;
    }
  }
}

}  // namespace tutti
