// The communicators of this rank, and what came for them before they were there.
//
// Thread-safe. Clients are called under the table's lock, so that detach() returns only when no
// call is running.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "transport/bootstrap/control.h"

namespace tutti::bootstrap {

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

  void abort(uint64_t communicator, const Error& error);
  // False if that was known already.
  bool rank_died(int rank, const Error& error);
  std::optional<Error> death_of(int rank) const;
  // Nothing when the communicator is not attached yet: the question is kept. An empty text when it
  // was detached.
  std::optional<Answer> question(uint64_t communicator, int from, uint32_t call);
  void answer(uint64_t communicator, int from, uint32_t call, std::string_view text);
  // Kept like a question.
  void connection(uint64_t communicator, int from, int lane, Fd socket);
  void opened(uint64_t communicator, int to, int lane, Fd socket);
  // For when the channel itself fails.
  void abort_all(const Error& error);

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
    Fd socket;
  };

  ControlClient* find(uint64_t communicator) const;
  bool was_detached(uint64_t communicator) const { return detached_.contains(communicator); }
  void keep(Kept kept);

  const size_t max_kept_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
  std::map<int, Error> deaths_;
  std::unordered_set<uint64_t> detached_;  // for these nothing is kept: ids do not repeat
  // Oldest first; beyond max_kept_ the oldest goes. Aborts reach every rank, members or not, and so
  // have a queue of their own.
  std::deque<Kept> kept_;
  std::deque<std::pair<uint64_t, Error>> kept_aborts_;
};

}  // namespace tutti::bootstrap
