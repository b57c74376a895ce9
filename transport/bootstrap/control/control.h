// The control channel: bootstrap, authentication and out-of-band messages between ranks.
//
// Ranks 0 .. p-1 form a tree (parent of r is (r - 1) / fanout). Its TCP links stay up for the life
// of the job and carry messages that must arrive even if the data path is stuck: deaths, aborts,
// questions to stalled peers. One thread per Control sleeps in poll() and serves the links, the
// listener, and the unix socket through which ranks of one host get each other's shared memory.
//
//         0           A rank that sees a link break floods the tree with the death.
//       / | \         A question is routed by rank arithmetic.
//      1  2  3        A leaving rank says goodbye, and serves its subtree until the subtree
//     / \  |          has left too, for at most two seconds. The children of a rank that has
//    4   5 6          left or died connect to their nearest remaining ancestor
//                     (control_relinking.cc).
//
// Handshake (every TCP connection): the acceptor sends a nonce; the connector answers with its
// claimed identity and an HMAC-SHA256 over both nonces and the claim, keyed by the job's token.
// Nothing else is parsed until the HMAC has been verified. Connections that fail are dropped and
// logged once. If the job has a token, links continue with TLS. Data connections continue with TLS
// only if TUTTI_ENCRYPT requests it.
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

// A communicator's callbacks on the control channel. The control thread invokes them; attach()
// itself invokes them for events that arrived before it. Callbacks must neither block nor call back
// into Control.
class ControlClient {
 public:
  virtual ~ControlClient() = default;
  // Reports that a member died or left early, or that a member aborted the communicator.
  virtual void on_abort(const Error& error) = 0;
  // Returns this rank's progress in `call`, for which the stalled rank `asker` asks. The channel
  // does not interpret the text.
  virtual std::string on_question(int asker, uint32_t call) = 0;
  // Receives the answer of `rank`, which is empty if that rank has detached the communicator.
  virtual void on_answer(int rank, uint32_t call, std::string_view answer) = 0;
  // Takes a data connection that `rank` (a world rank) opened. The socket is non-blocking; the
  // handshake, and the TLS handshake if there is one, are complete. `number`: see Renewal.
  virtual void on_connection(int rank, int lane, int number, ByteStream socket) = 0;
  // Takes the data connection that open_connection() requested, in the same state as in
  // on_connection().
  virtual void on_opened(int rank, int lane, ByteStream socket) = 0;
  // Returns statistics for observers of the job. detach() calls it a last time.
  virtual Activity activity() { return {}; }
};

// The channel as one rank sees it. After fork(), the child is not a member of the job: calls that
// use the channel throw Error(unsupported), except that detach(), withdraw() and the destructor do
// nothing.
class Control {
 public:
  // Connects all ranks of the job. The job's init timeout limits each phase: until all ranks have
  // arrived, until this rank has received the table of ranks, and until the tree below this rank is
  // linked. Throws Error(bootstrap) that names the missing ranks, the rank with different settings,
  // or the refused peer and the reason. Throws Error(rank_died) if a rank ends meanwhile.
  static std::shared_ptr<Control> connect(const Job& job);

  // Leaves the job with a goodbye, so that it does not count as a death. Waits up to two seconds
  // for the ranks below this one in the tree to leave as well.
  virtual ~Control() = default;

  // Returns true in a forked child of the process that joined the job. It needs no system call.
  virtual bool forked() const = 0;

  // Returns statistics of the bootstrap; valid once connect() has returned.
  virtual const InitStats& init_stats() const = 0;

  // Returns 16 hexadecimal digits, the same on all ranks, that distinguish this job from others and
  // from earlier starts of the same job. They are not secret.
  virtual const std::string& job_name() const = 0;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const PeerInfo& peer(int rank) const = 0;
  // Formats as "rank 3 (node7, pid 1234)".
  std::string describe(int rank) const;

  // Exists while this rank creates a communicator. Construct it before other members can mention
  // the communicator, and destroy it once the communicator is attached or its creation has failed.
  class Making {
   public:
    explicit Making(Control& control) : control_(control) { control_.expect_communicator(); }
    ~Making() { control_.stop_expecting(); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    Control& control_;
  };

  // Registers a communicator. `members` are world ranks. The client is notified of deaths of
  // members and of events of its own communicator. Aborts, connections and questions for an id that
  // is not attached are kept before the job's first attach() and while a Making lives. At other
  // times such connections are closed, and such questions are answered with an empty text.
  virtual void attach(uint64_t communicator, std::vector<int> members, ControlClient* client) = 0;
  // Removes the communicator. After return, no call to its client is running and none will follow.
  virtual void detach(uint64_t communicator) = 0;

  // Returns an Error(rank_died) that names the first death in this job and all ranks known to be
  // killed since, whether or not they are members of a communicator. Ranks that exited on their own
  // after the first death are omitted, because that death may have made them exit. For the same
  // reason leaving peers and broken connections are omitted. Returns nullopt if no rank died.
  virtual std::optional<Error> deaths() const = 0;
  // Excludes these ranks from deaths(). The other ranks have agreed to continue without them, so
  // later failures have other causes.
  virtual void settle_deaths(std::span<const int> ranks) = 0;

  // Aborts the communicator on every member, including this one. Never blocks.
  virtual void poison(uint64_t communicator, const Error& error) = 0;
  // Asks `rank` for its progress in `call`. The answer, if any, arrives through on_answer() of this
  // rank's client. Never blocks.
  virtual void ask(uint64_t communicator, int rank, uint32_t call) = 0;
  // Returns the first rank on the way to `rank` (possibly `rank` itself). While that first rank is
  // stalled, no answers arrive from the ranks behind it.
  virtual int way_to(int rank) const = 0;
  // Returns true once `rank` has said goodbye: it will make no further call.
  virtual bool has_left(int rank) const = 0;
  // Returns true once the death of `rank` is known. Until the death is settled, deaths() gives its
  // cause.
  virtual bool has_died(int rank) const = 0;
  // Reports a broken data connection to `rank`. If `rank` is not known to have left or died within
  // two seconds, aborts the communicator on all members: with the error of deaths() or, if that is
  // empty, with Error(connection_lost, text). Never blocks.
  virtual void suspect(uint64_t communicator, int rank, std::string text) = 0;

  // Starts the members' agreement `number` on that communicator (agreement.h). The future receives
  // the decision, which is the same on all ranks that get one, or an Error: timeout, or
  // connection_lost if this rank is cut off from the quorum. All surviving members must call. Never
  // blocks.
  virtual std::future<AgreementEnd> agree(uint64_t communicator, uint32_t number,
                                          Contribution contribution,
                                          std::chrono::milliseconds timeout) = 0;

  // Requests a data connection to a member. Never blocks: on_opened() receives the socket after the
  // handshake. If the handshake fails, or takes 30 seconds (longer in a large world), the peer is
  // suspected (see suspect()). The request is dropped if the communicator detaches or the peer
  // leaves meanwhile. Lanes alternate over the rails that both ranks have: lane L uses rail L
  // modulo the number of these rails; silent rails are skipped. A replacement connection tries each
  // rail in turn until one works or TUTTI_NETWORK_TIMEOUT has passed.
  virtual void open_connection(uint64_t communicator, int rank, int lane, Renewal renewal) = 0;

  // Share memory between the ranks of one host: the memory's owner offers a descriptor under a
  // name, and other ranks fetch it. fetch() waits for offer(); withdraw() ends the offer.
  virtual void offer(const std::string& name, int fd) = 0;
  virtual void withdraw(const std::string& name) = 0;
  virtual Fd fetch(int rank, const std::string& name, const Deadline& deadline) = 0;

 private:
  virtual void expect_communicator() = 0;
  virtual void stop_expecting() = 0;
};

}  // namespace tutti
