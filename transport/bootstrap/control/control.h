// The control channel: how ranks find, trust and keep hearing of each other.
//
// Ranks 0 .. p-1 form a tree (parent of r is (r - 1) / fanout). Its TCP links stay up for the life
// of the job and carry what must arrive although the data path is stuck: deaths, aborts, questions
// to stalled peers. One thread per Control sleeps in poll() and serves the links, the listener, and
// the unix socket through which ranks of one host get each other's shared memory.
//
//         0           a death is told by whoever sees the link break, and floods the tree
//       / | \         a question is routed by rank arithmetic
//      1  2  3        whoever leaves says goodbye, and serves its subtree until that has left too,
//     / \  |          for two seconds at most; ranks below one that has gone, or has died, connect
//    4   5 6          to the next one above it that is there (control_relinking.cc)
//
// Handshake (every TCP connection): the acceptor sends a nonce, the connector answers with who it
// is and an HMAC-SHA256 over both nonces and its claim, keyed by the job's token. Until that is
// checked nothing else is parsed. Strangers are dropped and logged once. Where there is a token TLS
// follows, on data connections where TUTTI_ENCRYPT asks for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "transport/bootstrap/control/init_stats.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/handshake/peer_info.h"
#include "transport/bootstrap/membership/activity.h"
#include "transport/bootstrap/membership/agreed.h"
#include "transport/renewal.h"
#include "transport/stream/byte_stream.h"

namespace tutti {

// One communicator's ear on the control channel. All calls come from the control thread, except for
// what was known or kept before attach(): that comes from within attach(). They must not block nor
// call back into Control.
class ControlClient {
 public:
  virtual ~ControlClient() = default;
  // A member died or left without being done, or someone poisoned the communicator.
  virtual void on_abort(const Error& error) = 0;
  // A stalled rank asks how far this one is with `call`; the answer is opaque to the channel.
  virtual std::string on_question(int asker, uint32_t call) = 0;
  // Empty when that rank has detached the communicator.
  virtual void on_answer(int rank, uint32_t call, std::string_view answer) = 0;
  // A data connection from `rank` (a world rank), its handshake done, TLS included;
  // blocking mode is off. `number`: Renewal.
  virtual void on_connection(int rank, int lane, int number, ByteStream socket) = 0;
  // The connection that open_connection() asked for; the same in all else.
  virtual void on_opened(int rank, int lane, ByteStream socket) = 0;
  // For whoever watches the job, and at the end from within detach().
  virtual Activity activity() { return {}; }
};

// After fork() the child has no part in the job: its calls throw Error(unsupported), except that
// detach(), withdraw() and the destructor do nothing.
class Control {
 public:
  // Finds all ranks of the job; blocks up to the job's init timeout. Throws Error(bootstrap) that
  // names the missing ranks, the rank whose settings differ, or what was refused and why.
  static std::shared_ptr<Control> connect(const Job& job);

  // Leaves the job: says goodbye, so that it is not taken for a death. Waits for the ranks below
  // this one in the tree to leave as well, two seconds at most.
  virtual ~Control() = default;

  // True in a child of the process that joined the job. Cheap: no system call.
  virtual bool forked() const = 0;

  // Once connect() has returned.
  virtual const InitStats& init_stats() const = 0;

  // 16 hexadecimal digits that tell this job from others and from its own other starts, the same on
  // all ranks; no secret.
  virtual const std::string& job_name() const = 0;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const PeerInfo& peer(int rank) const = 0;
  // "rank 3 (node7, pid 1234)"
  std::string describe(int rank) const;

  // While one lives a new communicator is being made on this rank. From before the other members
  // hear of that until it is attached, or will not be.
  class Making {
   public:
    explicit Making(Control& control) : control_(control) { control_.expect_communicator(); }
    ~Making() { control_.stop_expecting(); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    Control& control_;
  };

  // `members` are world ranks. A client hears of deaths of members, and of its communicator only.
  // Aborts, connections and questions that arrive for an id that is not attached are kept for it
  // before the job's first attach() and while there is a Making; else it is gone: connections are
  // closed and questions answered with an empty text.
  virtual void attach(uint64_t communicator, std::vector<int> members, ControlClient* client) = 0;
  // When this returns no call to the client is running and none will come.
  virtual void detach(uint64_t communicator) = 0;

  // Why ranks of this job have died, members of a communicator or not: an Error(rank_died) that
  // names the first and whoever is known to have been killed since, but none that ended by itself
  // after it: that may be a consequence, as are peers that leave now and connections that break.
  // Nothing as long as no rank died.
  virtual std::optional<Error> deaths() const = 0;
  // From now on deaths() knows nothing of these ranks: others have agreed to go on without them, so
  // what happens next has other causes.
  virtual void settle_deaths(std::span<const int> ranks) = 0;

  // Tells every member's client, this one's included. Never blocks.
  virtual void poison(uint64_t communicator, const Error& error) = 0;
  // on_answer() of this rank's client hears the answer, if one comes. Never blocks.
  virtual void ask(uint64_t communicator, int rank, uint32_t call) = 0;
  // The rank that questions to another `rank` go through first, or that one itself: while it stands
  // still nothing is heard of whoever is behind it.
  virtual int way_to(int rank) const = 0;
  // True once `rank` has said goodbye: it will never call again.
  virtual bool has_left(int rank) const = 0;
  // True once it is known that `rank` has died; deaths() then says of what.
  virtual bool has_died(int rank) const = 0;
  // A broken data connection to `rank` was seen: unless the channel learns why within two seconds,
  // the members' clients are aborted with Error(connection_lost, text). Never blocks.
  virtual void suspect(uint64_t communicator, int rank, std::string text) = 0;

  // Begins the members' `number`th agreement on that communicator (agreement.h): the future has the
  // decision, alike on all that get one, or an Error: timeout, or connection_lost where this rank
  // is cut off from the quorum. All members that are left must call. Never blocks.
  virtual std::future<AgreementEnd> agree(uint64_t communicator, uint32_t number,
                                          Contribution contribution,
                                          std::chrono::milliseconds timeout) = 0;

  // Asks for a data connection to a member. Never blocks: the client's on_opened() gets the socket
  // when the handshake is done; if that fails, or takes 30 seconds, the peer is suspected (as by
  // suspect()). Comes to nothing when the communicator detaches meanwhile or the peer has left.
  // Lanes take turns with the rails that both ranks have: it runs over rail `lane` mod their
  // number, and passes over those that went silent. One that takes the place of another is tried
  // over each of them in turn, for TUTTI_NETWORK_TIMEOUT.
  virtual void open_connection(uint64_t communicator, int rank, int lane, Renewal renewal) = 0;

  // Shared memory between ranks of one host: the owner offers a descriptor under a name, others
  // fetch it. offer() before or after fetch(): fetch waits. withdraw() ends the offer.
  virtual void offer(const std::string& name, int fd) = 0;
  virtual void withdraw(const std::string& name) = 0;
  virtual Fd fetch(int rank, const std::string& name, const Deadline& deadline) = 0;

 private:
  virtual void expect_communicator() = 0;
  virtual void stop_expecting() = 0;
};

}  // namespace tutti
