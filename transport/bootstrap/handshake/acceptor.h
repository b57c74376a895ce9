// The accepting side of the handshake: listening sockets, one for each rail, and the connections
// that have not proved themselves yet.
//
// Nobody can stall it: hellos are read as they come, whoever is too slow is dropped, and of very
// many the oldest that has not proved itself. Both limits grow with the world, all of whose ranks
// may come at once and share a few cores, the number up to a bound; a rank that is dropped
// nevertheless tries again. Strangers and refused ranks are logged once per kind.
#pragma once

#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/peer_info.h"
#include "transport/bootstrap/handshake/poll_set.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

// What an acceptor says to a hello whose proof is right.
enum class Decision {
  accept,
  duplicate,
  not_in_job,
  given_up,  // others have taken it for dead
  ignore     /* closes without a word: try again */
};

class Acceptor {
 public:
  // Asked once the proof, the version and the world size are right.
  using Judge = std::function<Decision(const Hello&)>;
  // Gets every accepted connection (non-blocking).
  using Welcome = std::function<void(const Hello&, ByteStream)>;
  // Hears of a rank that is refused since it thinks the world is of another size.
  using OtherSize = std::function<void(const Hello&, const std::string& from)>;

  Acceptor() = default;  // listens to nobody
  Acceptor(Fd listener, std::string token, int world_size, int rank = 0)
      : token_(std::move(token)), world_size_(world_size), rank_(rank) {
    listeners_.push_back(std::move(listener));
  }
  // Listens on further interfaces (Job::more_interfaces), to their addresses only, and tells where.
  // Throws Error(bootstrap).
  std::vector<RailAddress> listen_on_rails(const std::vector<std::string>& interfaces);
  // This rank's own addresses, by rail; their ports are 0.
  std::vector<SocketAddress> own_addresses() const;

  // The key of every purpose but the bootstrap and watching, whose key is the token.
  void set_session_key(std::string key) { session_key_ = std::move(key); }
  // From now on nobody is accepted in the clear: the job has a token. Of data that is demanded
  // where all ranks send it encrypted, and of descriptors never, since they cannot go through TLS.
  void demand_encryption(bool of_data) {
    demands_encryption_ = true;
    demands_encrypted_data_ = of_data;
  }
  void on_other_size(OtherSize other_size) { other_size_ = std::move(other_size); }

  // Adds what it waits for; `judge` and `welcome` are called from set.run().
  void watch(PollSet& set, const Judge& judge, const Welcome& welcome);

 private:
  struct Guest {
    ByteStream socket;
    std::string from;
    Challenge challenge;
    Hello hello;
    size_t received = 0;
    Clock::time_point give_up;
    bool accepted = false;  // TLS is under way
    bool done = false;
  };

  void accept_some(int listener);
  void admit(Fd socket);
  const std::string& key_for(const Hello& hello) const {
    const bool outside = hello.purpose == Purpose::bootstrap || hello.purpose == Purpose::watch;
    return outside ? token_ : session_key_;
  }
  void read(Guest& guest, const Judge& judge, const Welcome& welcome);
  void encrypt(Guest& guest, const Welcome& welcome);
  bool must_encrypt(const Hello& hello) const;
  Refusal judge_hello(const Guest& guest, const Judge& judge, bool& ignore);
  void say_once(const std::string& kind, const std::string& text);
  void drop_late();
  void drop_too_many();
  size_t most_guests() const;
  std::chrono::milliseconds time_to_finish() const;

  std::vector<Fd> listeners_;  // by rail
  std::string token_;
  std::string session_key_;
  int world_size_ = 0;
  int rank_ = 0;
  bool demands_encryption_ = false;
  bool demands_encrypted_data_ = false;
  OtherSize other_size_;
  std::list<Guest> guests_;
  std::set<std::string> said_;
  Clock::time_point resume_at_{};  // out of descriptors: accept nobody until then
};

}  // namespace tutti::bootstrap
