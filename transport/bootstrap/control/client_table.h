// The communicators of this rank, and what came for them before they were there.
//
// What arrives for a communicator that is not attached is kept while it may come, and else answered
// as for one that is gone. It may come before the first one of the job was attached, and while one
// is being made: a rank that speaks of a new communicator has heard from all members that they are
// making it. So nothing need be remembered of those that are gone.
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
  bool by_itself = false;  // it ended its own life: another one's may have been the cause
  bool certain = false;    // the launcher saw it end; else it may only be out of reach
  bool settled = false;    // others have agreed to go on without it
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

  // Returns the answers to the questions that were kept.
  std::vector<Answer> attach(uint64_t communicator, std::vector<int> members,
                             ControlClient* client);
  void detach(uint64_t communicator);
  bool attached(uint64_t communicator) const;
  // Between these two a communicator may come. The second returns the answers to the questions that
  // were kept for one that did not.
  void expect();
  std::vector<Answer> stop_expecting();

  void abort(uint64_t communicator, const Error& error);
  // False if that was known already, and as certain. The clients hear of it by tell_deaths().
  bool rank_died(const Death& death);
  // Tells the communicators of those that died of what they died.
  void tell_deaths();
  std::vector<Death> all_deaths() const;
  bool has_certainly_died(int rank) const;
  void settle_deaths(std::span<const int> ranks);
  // Why ranks of this job died: see Control::deaths(). Nothing as long as none did.
  std::optional<Error> deaths() const;
  // Nothing when the communicator may come: the question is kept. An empty text when it is gone.
  std::optional<Answer> question(uint64_t communicator, int from, uint32_t call);
  void answer(uint64_t communicator, int from, uint32_t call, std::string_view text);
  // Kept like a question.
  void connection(uint64_t communicator, int from, int lane, int number, ByteStream socket);
  void opened(uint64_t communicator, int to, int lane, ByteStream socket);
  // Of all communicators, those that are gone as well.
  Activity activity() const;
  // For when the channel itself fails.
  void abort_all(const Error& error);
  // Everything that this table holds: for tests.
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
  // Of at least one: with those settled ones of which that is true.
  Error explain_deaths(const std::function<bool(const Death&)>& settled_too) const;
  void keep(Kept kept);

  const size_t max_kept_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
  Activity past_;  // of communicators that are gone
  bool any_attached_ = false;
  int making_ = 0;
  std::vector<Death> deaths_;  // in the order in which they were heard of
  size_t deaths_told_ = 0;
  // Oldest first; beyond max_kept_ the oldest goes. Aborts reach every rank, members or not, and so
  // have a queue of their own.
  std::deque<Kept> kept_;
  std::deque<std::pair<uint64_t, Error>> kept_aborts_;
};

}  // namespace tutti::bootstrap
