#include "tools/tutti/top/listeners.h"

#include <netinet/in.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/text.h"

namespace tutti::tool {

namespace {

using bootstrap::SocketAddress;

// Returns the inodes of the process's sockets, whose descriptors are links to "socket:[INODE]".
std::set<std::string> sockets_of(int pid) {
  constexpr std::string_view kBefore = "socket:[";
  std::set<std::string> inodes;
  std::error_code problem;
  for (const auto& entry :
       std::filesystem::directory_iterator(cat("/proc/", pid, "/fd"), problem)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), problem);
    if (!target.starts_with(kBefore)) continue;
    inodes.insert(target.substr(kBefore.size(), target.size() - kBefore.size() - 1));
  }
  return inodes;
}

uint32_t hexadecimal(std::string_view text) {
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// Parses "0100007F:7328": the address in memory byte order, and the port as a number. The wildcard
// address becomes loopback.
SocketAddress parse_local(const std::string& text) {
  const size_t colon = text.find(':');
  SocketAddress address;
  if (colon == 8) {
    sockaddr_in v4{.sin_family = AF_INET};
    v4.sin_addr.s_addr = hexadecimal(text.substr(0, 8));
    if (v4.sin_addr.s_addr == INADDR_ANY) v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.length = sizeof(v4);
    std::memcpy(&address.storage, &v4, sizeof(v4));
  } else {
    sockaddr_in6 v6{.sin6_family = AF_INET6};
    for (size_t i = 0; i < 4; ++i) {
      const uint32_t word = hexadecimal(text.substr(8 * i, 8));
      std::memcpy(v6.sin6_addr.s6_addr + 4 * i, &word, sizeof(word));
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) v6.sin6_addr = in6addr_loopback;
    address.length = sizeof(v6);
    std::memcpy(&address.storage, &v6, sizeof(v6));
  }
  address.set_port(static_cast<uint16_t>(hexadecimal(text.substr(colon + 1))));
  return address;
}

}  // namespace

std::vector<SocketAddress> listeners_of(int pid) {
  const std::set<std::string> inodes = sockets_of(pid);
  std::vector<SocketAddress> addresses;
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream file(cat("/proc/", pid, "/net/", table));
    std::string line;
    std::getline(file, line);  // skips the column names
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      constexpr std::string_view kListens = "0A";
      if (state == kListens && inodes.contains(inode)) addresses.push_back(parse_local(local));
    }
  }
  return addresses;
}

}  // namespace tutti::tool
