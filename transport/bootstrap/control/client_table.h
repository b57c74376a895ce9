// The communicators of this rank, and messages that arrive before their communicator is attached.
//
// A message for an unattached communicator is kept while that communicator may still be attached,
// and otherwise answered as for a detached one. It may still be attached before the first
// communicator of the job, and while one is being created: a rank that mentions a new communicator
// knows that all members are creating it. So detached communicators need not be remembered.
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
  bool by_itself = false;  // it exited on its own, possibly because of another death
  bool certain = false;    // the launcher saw it end; otherwise it may only be unreachable
  bool settled = false;    // others have agreed to continue without it
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

  // Returns the answers to the questions kept for it.
  std::vector<Answer> attach(uint64_t communicator, std::vector<int> members,
                             ControlClient* client);
  void detach(uint64_t communicator);
  bool attached(uint64_t communicator) const;
  // Bracket the creation of a communicator. stop_expecting() returns the answers to the questions
  // kept for one that was never attached.
  void expect();
  std::vector<Answer> stop_expecting();

  void abort(uint64_t communicator, const Error& error);
  // Returns false if the death was known already, with the same certainty. tell_deaths() notifies
  // the clients.
  bool rank_died(const Death& death);
  // Aborts the communicators of dead members, with the cause of death.
  void tell_deaths();
  std::vector<Death> all_deaths() const;
  bool has_certainly_died(int rank) const;
  void settle_deaths(std::span<const int> ranks);
  // Returns the cause of the deaths in this job (see Control::deaths()); nullopt without deaths.
  std::optional<Error> deaths() const;
  // Returns nullopt if the communicator may still be attached: the question is kept. Returns an
  // empty text if it is gone.
  std::optional<Answer> question(uint64_t communicator, int from, uint32_t call);
  void answer(uint64_t communicator, int from, uint32_t call, std::string_view text);
  // Kept as questions are.
  void connection(uint64_t communicator, int from, int lane, int number, ByteStream socket);
  void opened(uint64_t communicator, int to, int lane, ByteStream socket);
  // Sums over all communicators, including detached ones.
  Activity activity() const;
  // Called when the channel itself fails.
  void abort_all(const Error& error);
  // Number of entries of all kinds, for tests.
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
  // Requires at least one death; includes settled ones for which `settled_too` is true.
  Error explain_deaths(const std::function<bool(const Death&)>& settled_too) const;
  void keep(Kept kept);

  const size_t max_kept_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
  Activity past_;  // of detached communicators
  bool any_attached_ = false;
  int making_ = 0;
  std::vector<Death> deaths_;  // in the order of their reports
  size_t deaths_told_ = 0;
  // The oldest entry first, which is dropped beyond max_kept_. Aborts reach every rank, members or
  // not, and so have a queue of their own.
  std::deque<Kept> kept_;
  std::deque<std::pair<uint64_t, Error>> kept_aborts_;
};

}  // namespace tutti::bootstrap
