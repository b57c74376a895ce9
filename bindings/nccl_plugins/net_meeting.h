// Connects NCCL's proxies by listen, connect and accept. None of these functions blocks.
//
//     receiver                                     sender
//     Listener: a port and a key  -- handle, by NCCL -->  Connecting: one socket for each stream,
//     accept: all streams of one sender                   each by the handshake of the bootstrap
//
// The handshake is that of the bootstrap (transport/bootstrap/handshake), with the listener's key
// in place of a job's token. So a peer without the handle is dropped before anything else is
// parsed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "bindings/nccl_plugins/net_abi.h"
#include "transport/bootstrap/handshake/acceptor.h"
#include "transport/bootstrap/handshake/connector.h"

namespace tutti::nccl {

inline constexpr int kMostStreams = 16;

// Connected, non-blocking sockets, indexed by stream number.
using Streams = std::vector<Fd>;

class Connecting;

// The handle that NCCL passes from one end to the other.
struct Handle {
  uint64_t magic = 0;
  // State of the connecting side between its calls. NCCL passes the same memory each time until the
  // connection exists, and NCCL's own networks keep their state there too.
  Connecting* connecting = nullptr;
  std::array<char, 32> key = {};
  std::array<char, 64> address = {};  // numeric, zero-terminated
  uint16_t port = 0;
  uint16_t streams = 0;
};
static_assert(sizeof(Handle) <= NCCL_NET_HANDLE_MAXSIZE);

// Reads a handle from NCCL's memory, which may be unaligned. Throws Error(invalid_argument) if no
// Listener wrote it.
Handle read_handle(const void* memory);
void write_handle(const Handle& handle, void* memory);

class Listener {
 public:
  // Starts listening. Throws Error(bootstrap, system).
  explicit Listener(const std::string& interface);

  const Handle& handle() const { return handle_; }
  // Accepts ready connections without blocking. Returns the streams of a sender once the sender has
  // opened all of them, otherwise nullopt.
  std::optional<Streams> accept();

 private:
  void welcome(const bootstrap::Hello& hello, Fd socket);

  Handle handle_;
  bootstrap::Acceptor acceptor_;
  std::map<uint64_t, Streams> coming_;  // by the connection's number in the hello
  std::vector<Streams> come_;
};

class Connecting {
 public:
  explicit Connecting(const Handle& handle);

  // Continues to connect without blocking. Returns all streams once they are open, otherwise
  // nullopt. Throws Error(connection_lost, bootstrap, system).
  std::optional<Streams> advance();

 private:
  bootstrap::Connector connector_;
  Streams streams_;
  int missing_;
  std::optional<Error> failure_;
};

}  // namespace tutti::nccl
