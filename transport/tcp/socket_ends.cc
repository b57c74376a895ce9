#include "transport/tcp/socket_ends.h"

#include <netdb.h>
#include <sys/socket.h>

#include "base/text.h"

namespace tutti {

namespace {

using GetName = int (*)(int, sockaddr*, socklen_t*);

std::string address(int socket, GetName get_name) {
  sockaddr_storage raw{};
  socklen_t length = sizeof(raw);
  auto* const name = reinterpret_cast<sockaddr*>(&raw);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (get_name(socket, name, &length) != 0 ||
      ::getnameinfo(name, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  return raw.ss_family == AF_INET6 ? cat("[", host, "]:", port) : cat(host, ":", port);
}

}  // namespace

std::string own_end(int socket) { return address(socket, ::getsockname); }
std::string peer_end(int socket) { return address(socket, ::getpeername); }

}  // namespace tutti
