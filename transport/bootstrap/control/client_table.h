// The communicators of this rank, and messages that arrive before their communicator is attached.
//
// A message may name a communicator that is not attached. If that communicator may still be
// attached, the message is kept; otherwise it is answered as for a detached communicator. A
// communicator may still be attached while this rank is creating one, and as long as none has ever
// been attached in this job. This is enough, because other ranks mention a new communicator only
// once all members are creating it. So the table need not remember detached communicators.
//
// Thread-safe. Clients are called under the table's lock, so that detach() returns only when no
// call is running.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::bootstrap {

struct Death {
  int rank = 0;
  std::string text;        // "rank 3 (node7, pid 1234) was killed by signal 9 (Killed)"
  bool by_itself = false;  // true: the rank exited on its own, possibly because of another death
  bool certain = false;    // true: the launcher saw the rank end; false: it may be unreachable only
  bool settled = false;    // true: the other ranks have agreed to continue without it
};

class ClientTable {
 public:
  struct Answer {
    uint64_t communicator = 0;
    int to = 0;
    uint32_t call = 0;
    std::string text;
  };

  explicit ClientTable(int world_size);

  // Adds a communicator, and returns the answers to the questions that were kept for it.
  std::vector<Answer> attach(uint64_t communicator, std::vector<int> members,
                             ControlClient* client);
  void detach(uint64_t communicator);
  bool attached(uint64_t communicator) const;
  // Begin and end the creation of a communicator. stop_expecting() returns the answers to questions
  // for communicators that were never attached.
  void expect();
  std::vector<Answer> stop_expecting();

  void abort(uint64_t communicator, const Error& error);
  // Records a death. Returns false if it was known already with at least this certainty.
  // report_deaths() notifies the clients.
  bool rank_died(const Death& death);
  // Aborts the communicators of dead members, with the cause of death.
  void report_deaths();
  std::vector<Death> all_deaths() const;
  bool has_certainly_died(int rank) const;
  void settle_deaths(std::span<const int> ranks);
  // Returns the cause of the deaths in this job (see Control::deaths()); nullopt if all deaths are
  // settled.
  std::optional<Error> deaths() const;
  // Asks the communicator for its answer. Returns an empty text if the communicator is gone.
  // Returns nullopt if the communicator may still be attached; the question is then kept.
  std::optional<Answer> question(uint64_t communicator, int from, uint32_t call);
  void answer(uint64_t communicator, int from, uint32_t call, std::string_view text);
  // Hands a connection to its communicator, or keeps the connection if the communicator may still
  // be attached.
  void connection(uint64_t communicator, int from, int lane, int number, ByteStream socket);
  void opened(uint64_t communicator, int to, int lane, ByteStream socket);
  // Returns the sums over all communicators, including detached ones.
  Activity activity() const;
  // Aborts all communicators; called when the channel itself fails.
  void abort_all(const Error& error);
  // Returns the number of entries of all kinds, for tests.
  size_t entries() const;

 private:
  struct Entry {
    std::vector<int> members;
    ControlClient* client = nullptr;
  };
  struct Kept {  // a question or a connection
    uint64_t communicator = 0;
    int from = 0;
    uint32_t call = 0;
    int lane = 0;
    int number = 0;
    ByteStream socket;
  };

  ControlClient* find(uint64_t communicator) const;
  bool may_come() const { return making_ > 0 || !any_attached_; }
  // Builds the error for the known deaths. At least one death must be known. A settled death is
  // included if `settled_too` is true for it.
  Error explain_deaths(const std::function<bool(const Death&)>& settled_too) const;
  void keep(Kept kept);

  const size_t max_kept_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
  Activity past_;  // sums of detached communicators
  bool any_attached_ = false;
  int making_ = 0;
  std::vector<Death> deaths_;  // in the order of their reports
  size_t deaths_reported_ = 0;
  // Kept messages, oldest first; the first is dropped when there are more than max_kept_. Aborts
  // have a queue of their own, because they reach every rank, members or not.
  std::deque<Kept> kept_;
  std::deque<std::pair<uint64_t, Error>> kept_aborts_;
};

}  // namespace tutti::bootstrap
