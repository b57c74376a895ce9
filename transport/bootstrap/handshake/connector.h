// The connecting side of the handshake, for data connections, links and probes. It makes several
// connections concurrently, without blocking. An attempt that the acceptor drops (under load) is
// repeated.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/peer_info.h"
#include "transport/bootstrap/handshake/poll_set.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

class Connector {
 public:
  using Opened = std::function<void(uint64_t communicator, int rank, int lane, ByteStream socket)>;
  // Reports a failed attempt. The error has code `system` if the cause is on this host, not at the
  // peer.
  using Failed = std::function<void(uint64_t communicator, int rank, const Error& error)>;

  Connector() = default;
  // Creates a connector. `own`: this rank's addresses, by rail (Acceptor::own_addresses()).
  Connector(std::string key, int world_size, std::vector<SocketAddress> own = {})
      : key_(std::move(key)), world_size_(world_size), own_(std::move(own)) {}

  // Starts an attempt. `hello` identifies this rank and names the communicator and the lane; `rank`
  // and `whom` identify the peer in callbacks and messages. The lane, plus `detours` (see Renewal),
  // selects one of the rails that both ranks have. With several rails, the connection is bound to
  // this rank's own address on that rail. Failures are reported by watch() or a later call.
  void start(const PeerInfo& peer, int rank, const Hello& hello, const std::string& whom,
             int detours = 0);
  // Drops a communicator's attempts without callbacks.
  void drop(uint64_t communicator);

  // Adds the sockets to the set; the callbacks are called from here and from set.run(). An attempt
  // fails after 30 seconds, or later in a large world, whose ranks may share a few cores; if the
  // network is down, it fails after TUTTI_NETWORK_TIMEOUT. A replacement connection is retried over
  // one rail after the other. It fails after TUTTI_NETWORK_TIMEOUT and, if it is a link, as soon as
  // the peer's process is gone.
  void watch(PollSet& set, const Opened& opened, const Failed& failed);

 private:
  enum class Stage { pausing, connecting, reading_challenge, reading_verdict, encrypting, done };
  struct Attempt {
    Hello hello;
    int rank = 0;
    std::string whom;
    std::vector<RailAddress> rails;  // the peer's rails that this rank has as well
    size_t rail = 0;
    SocketAddress address;
    const SocketAddress* own = nullptr;  // local address to bind; null: the route selects it
    std::string place;
    Clock::time_point give_up;
    std::optional<Clock::time_point> next_rail_at;
    std::optional<Clock::time_point> down_until;  // the network is down; the attempt fails then
    std::string last_failure;
    bool refused = false;  // true: the process or its listener is gone, or has excluded this rank
    Clock::time_point resume_at;         // end of the present pause
    std::chrono::milliseconds pause{1};  // length of the next pause; it doubles up to a limit
    ByteStream socket;
    Stage stage = Stage::connecting;
    Challenge challenge{};
    Verdict verdict{};
    size_t received = 0;  // bytes of the challenge or the verdict
    std::optional<Error> failure;
  };

  void advance(Attempt& attempt, const Opened& opened);
  // Selects rail `first`; if that rail is known to be silent, selects the next rail that is not.
  void choose_rail(Attempt& attempt, size_t first);
  void try_next_rail(Attempt& attempt, const Error& error);
  Error too_late(const Attempt& attempt) const;
  void connect(Attempt& attempt);
  static void fail_connect(Attempt& attempt, int error);
  static Error unreachable(const Attempt& attempt, int error);
  static void pause(Attempt& attempt);
  void finish_connect(Attempt& attempt);
  void answer_challenge(Attempt& attempt);
  void read_verdict(Attempt& attempt, const Opened& opened);
  void encrypt(Attempt& attempt, const Opened& opened);
  void finish(Attempt& attempt, const Opened& opened);

  std::chrono::milliseconds time_to_open(const Hello& hello) const;

  std::string key_;
  int world_size_ = 0;
  std::vector<SocketAddress> own_;
  // Rails over which an attempt has failed, as (rank, rail). A connection over the rail removes it;
  // if all rails of a rank have failed, all of them are removed.
  std::set<std::pair<int, size_t>> silent_;
  std::list<Attempt> attempts_;  // a list, because handlers keep references to attempts
};

}  // namespace tutti::bootstrap
