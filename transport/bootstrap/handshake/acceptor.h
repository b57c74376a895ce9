// The accepting side of the handshake: one listening socket per rail, and the connections that are
// not authenticated yet.
//
// No peer can stall it: hellos are read as they arrive, slow peers are dropped, and if there are
// too many unauthenticated connections the oldest is dropped. Both limits, the time and the number,
// grow with the job's size, because all ranks may connect at once and share a few cores; the number
// has an upper bound. A rank that is dropped retries. Foreign and refused peers are logged once per
// kind.
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

// The decision on a hello whose proof is valid.
enum class Decision {
  accept,
  duplicate,
  not_in_job,
  given_up,  // the other ranks consider it dead
  ignore     /* closes without a word: try again */
};

class Acceptor {
 public:
  // Decides on a hello. Called once the proof, the version and the world size are verified.
  using Judge = std::function<Decision(const Hello&)>;
  // Receives every accepted connection (non-blocking).
  using Welcome = std::function<void(const Hello&, ByteStream)>;
  // Called for a rank that is refused because it assumes another world size.
  using OtherSize = std::function<void(const Hello&, const std::string& from)>;

  Acceptor() = default;  // makes an acceptor without a listener
  Acceptor(Fd listener, std::string token, int world_size, int rank = 0)
      : token_(std::move(token)), world_size_(world_size), rank_(rank) {
    listeners_.push_back(std::move(listener));
  }
  // Listens on further interfaces (Job::more_interfaces), at their addresses only, and returns the
  // addresses with the ports. Throws Error(bootstrap).
  std::vector<RailAddress> listen_on_rails(const std::vector<std::string>& interfaces);
  // Returns this rank's addresses, by rail, with port 0.
  std::vector<SocketAddress> own_addresses() const;

  // Sets the key of all handshakes, except handshakes of the bootstrap and of observers, which use
  // the key that was passed to the constructor.
  void set_session_key(std::string key) { session_key_ = std::move(key); }
  // Refuses unencrypted links from now on, because the job has a token. If `of_data` is true, also
  // refuses unencrypted data connections, because all ranks encrypt data. Descriptor connections
  // are never encrypted, because TLS cannot carry descriptors.
  void demand_encryption(bool of_data) {
    demands_encryption_ = true;
    demands_encrypted_data_ = of_data;
  }
  void on_other_size(OtherSize other_size) { other_size_ = std::move(other_size); }

  // Adds the sockets to the set; set.run() calls `judge` and `welcome`.
  void watch(PollSet& set, const Judge& judge, const Welcome& welcome);

 private:
  struct PendingClient {
    ByteStream socket;
    std::string from;
    Challenge challenge;
    Hello hello;
    size_t received = 0;
    Clock::time_point give_up;
    bool accepted = false;  // true: the TLS handshake is in progress
    bool done = false;
  };

  void accept_some(int listener);
  void admit(Fd socket);
  const std::string& key_for(const Hello& hello) const {
    const bool outside = hello.purpose == Purpose::bootstrap || hello.purpose == Purpose::watch;
    return outside ? token_ : session_key_;
  }
  void read(PendingClient& client, const Judge& judge, const Welcome& welcome);
  void encrypt(PendingClient& client, const Welcome& welcome);
  bool must_encrypt(const Hello& hello) const;
  Refusal judge_hello(const PendingClient& client, const Judge& judge, bool& ignore);
  void say_once(const std::string& kind, const std::string& text);
  void drop_late();
  void drop_too_many();
  size_t most_clients() const;
  std::chrono::milliseconds time_to_finish() const;

  std::vector<Fd> listeners_;  // by rail
  std::string token_;
  std::string session_key_;
  int world_size_ = 0;
  int rank_ = 0;
  bool demands_encryption_ = false;
  bool demands_encrypted_data_ = false;
  OtherSize other_size_;
  std::list<PendingClient> clients_;
  std::set<std::string> logged_;
  Clock::time_point resume_at_{};  // no accepts before this time, for lack of descriptors
};

}  // namespace tutti::bootstrap
