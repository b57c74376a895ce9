// The connecting side of the handshake for data connections: several at a time, nobody waits.
//
// The acceptor's counterpart; belongs to the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/fd.h"
#include "transport/bootstrap/control.h"
#include "transport/bootstrap/handshake.h"
#include "transport/bootstrap/poll_set.h"

namespace tutti::bootstrap {

class Connector {
 public:
  using Opened = std::function<void(uint64_t communicator, int rank, int lane, Fd socket)>;
  // `text` says who and why, for people.
  using Failed = std::function<void(uint64_t communicator, int rank, const std::string& text)>;

  Connector() = default;
  explicit Connector(std::string key) : key_(std::move(key)) {}

  // `hello` says who this rank is and names the communicator and the lane; `rank` and `whom` are
  // the peer, for the callbacks and for people. A failure is told by watch() or later.
  void start(const PeerInfo& peer, int rank, const Hello& hello, const std::string& whom);
  // Ends a communicator's attempts without a word.
  void drop(uint64_t communicator);

  // Adds what it waits for; the callbacks come from here and from set.run(). An attempt fails that
  // has not succeeded within ten seconds.
  void watch(PollSet& set, const Opened& opened, const Failed& failed);

 private:
  enum class Stage { connecting, reading_challenge, reading_verdict, done };
  struct Attempt {
    Hello hello;
    int rank = 0;
    std::string place;
    Clock::time_point give_up;
    Fd socket;
    Stage stage = Stage::connecting;
    Challenge challenge{};
    Verdict verdict{};
    size_t received = 0;  // of the challenge or the verdict
    std::string failure;
  };

  void advance(Attempt& attempt, const Opened& opened);
  void finish_connect(Attempt& attempt);
  void answer_challenge(Attempt& attempt);

  std::string key_;
  std::list<Attempt> attempts_;  // handlers refer to them
};

}  // namespace tutti::bootstrap
