// The connecting side of the handshake for data connections: several at a time, nobody waits. An
// attempt that the acceptor drops (it had too many) is made again.
//
// The acceptor's counterpart; belongs to the control thread.
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
  // Of code `system` where the failure is this process's own, not the peer's.
  using Failed = std::function<void(uint64_t communicator, int rank, const Error& error)>;

  Connector() = default;
  // `own`: this rank's addresses, by rail (Acceptor::own_addresses()).
  Connector(std::string key, int world_size, std::vector<SocketAddress> own = {})
      : key_(std::move(key)), world_size_(world_size), own_(std::move(own)) {}

  // `hello` says who this rank is and names the communicator and the lane; `rank` and `whom` are
  // the peer, for the callbacks and for people. The lane says which of the rails that both have it
  // takes, with the detours from there (Renewal); where there are several, the connection comes
  // from this rank's own address on it. A failure is told by watch() or later.
  void start(const PeerInfo& peer, int rank, const Hello& hello, const std::string& whom,
             int detours = 0);
  // Ends a communicator's attempts without a word.
  void drop(uint64_t communicator);

  // Adds what it waits for; the callbacks come from here and from set.run(). An attempt fails that
  // has not succeeded within 30 seconds, or longer in a large world, whose ranks may share a few
  // cores. One for a connection that takes the place of another fails within TUTTI_NETWORK_TIMEOUT,
  // and, of links, where the process is gone: else it is made again, over one rail after the other.
  void watch(PollSet& set, const Opened& opened, const Failed& failed);

 private:
  enum class Stage { pausing, connecting, reading_challenge, reading_verdict, encrypting, done };
  struct Attempt {
    Hello hello;
    int rank = 0;
    std::string whom;
    std::vector<RailAddress> rails;  // of the peer, that both have
    size_t rail = 0;
    SocketAddress address;
    const SocketAddress* own = nullptr;  // to connect from; null: any
    std::string place;
    Clock::time_point give_up;
    std::optional<Clock::time_point> next_rail_at;
    std::string last_failure;
    bool refused = false;         // the process or its listener is gone, or has given this rank up
    Clock::time_point resume_at;  // while pausing
    std::chrono::milliseconds pause{1};  // the next one; each is longer than the last
    ByteStream socket;
    Stage stage = Stage::connecting;
    Challenge challenge{};
    Verdict verdict{};
    size_t received = 0;  // of the challenge or the verdict
    std::optional<Error> failure;
  };

  void advance(Attempt& attempt, const Opened& opened);
  // Takes the rail `first`, or the next one that is not known to be silent.
  void choose_rail(Attempt& attempt, size_t first);
  void try_next_rail(Attempt& attempt, const Error& error);
  Error too_late(const Attempt& attempt) const;
  void connect(Attempt& attempt);
  static Error unreachable(const Attempt& attempt, int error);
  void pause(Attempt& attempt);
  void finish_connect(Attempt& attempt);
  void answer_challenge(Attempt& attempt);
  void read_verdict(Attempt& attempt, const Opened& opened);
  void encrypt(Attempt& attempt, const Opened& opened);
  void finish(Attempt& attempt, const Opened& opened);

  std::chrono::milliseconds time_to_open(const Hello& hello) const;

  std::string key_;
  int world_size_ = 0;
  std::vector<SocketAddress> own_;
  std::set<std::pair<int, size_t>> silent_;  // rails to a rank, until one gets through there
  std::list<Attempt> attempts_;              // handlers refer to them
};

}  // namespace tutti::bootstrap
