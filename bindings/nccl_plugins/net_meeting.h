// How two ends of a connection between NCCL's proxies find each other: listen, connect, accept,
// none of which waits.
//
//     receiver                                     sender
//     Listener: a port and a key  -- handle, by NCCL -->  Connecting: one socket for each stream,
//     accept: all streams of one sender                   each by the handshake of the bootstrap
//
// The handshake is bootstrap/handshake.h's, with the listener's key in place of a job's token, so
// whoever does not know the handle is dropped before a word of it is parsed.
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

// Connected, non-blocking, by number.
using Streams = std::vector<Fd>;

class Connecting;

// What NCCL carries from the one end to the other.
struct Handle {
  uint64_t magic = 0;
  // The connecting side's own, kept here between its calls, as NCCL's own networks do: NCCL hands
  // over the same memory each time, until it has its connection.
  Connecting* connecting = nullptr;
  std::array<char, 32> key = {};
  std::array<char, 64> address = {};  // numeric, ends with 0
  uint16_t port = 0;
  uint16_t streams = 0;
};
static_assert(sizeof(Handle) <= NCCL_NET_HANDLE_MAXSIZE);

// From NCCL's memory, which need not be aligned. Throws Error(invalid_argument) for what no
// Listener wrote.
Handle read_handle(const void* memory);
void write_handle(const Handle& handle, void* memory);

class Listener {
 public:
  // Throws Error(bootstrap, system).
  explicit Listener(const std::string& interface);

  const Handle& handle() const { return handle_; }
  // One turn; the streams of a sender that has opened all of them.
  std::optional<Streams> accept();

 private:
  void welcome(const bootstrap::Hello& hello, Fd socket);

  Handle handle_;
  bootstrap::Acceptor acceptor_;
  std::map<uint64_t, Streams> coming_;  // by the senders' own numbers
  std::vector<Streams> come_;
};

class Connecting {
 public:
  explicit Connecting(const Handle& handle);

  // One turn; all streams once they are open. Throws Error(connection_lost, bootstrap, system).
  std::optional<Streams> advance();

 private:
  bootstrap::Connector connector_;
  Streams streams_;
  int missing_;
  std::optional<Error> failure_;
};

}  // namespace tutti::nccl
