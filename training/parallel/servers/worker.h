// A worker sends each server the gradients of that server's shard, and computes with the values in
// the servers' answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "collectives/communicator.h"
#include "training/parallel/servers/messages.h"
#include "training/parallel/servers/roles.h"
#include "training/parallel/storage.h"

namespace tutti::training {

// Staleness of this rank's values, in updates (async) or clocks (ssp), over all servers and pushes.
struct Staleness {
  int64_t pushes = 0;
  int64_t largest = 0;
  int64_t sum = 0;
  int64_t answers = 0;  // number of answers counted in `sum`
  double mean() const {
    return answers == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(answers);
  }
};

// Communicates with the servers. Only one thread may use it.
class Worker {
 public:
  // Creates a worker. The arguments are those of Server's constructor.
  Worker(Communicator& pushes, Communicator& answers, ParameterStorage& storage,
         const SyncOptions& options);

  // Starts a stretch. If `own_writes` is true (ssp), this worker applies its own gradients to its
  // values at once, before the servers' values contain them.
  void begin_stretch(int64_t steps, bool own_writes);
  // Sends the storage's gradients and blocks until all servers have answered. If `push.pulls` is
  // set, the storage then has the servers' values. With own writes, then subtracts from a server's
  // values this worker's own gradients, times their clock's `rate`, for each clock that these
  // values do not contain yet. Returns the part to compute next (async).
  int64_t exchange(const Push& push, double rate);

  std::chrono::nanoseconds waited() const { return waited_; }
  double bytes_sent() const { return bytes_sent_; }
  const Staleness& staleness() const { return staleness_; }
  int64_t bytes() const;

 private:
  struct OwnWrite {
    int64_t clock = 0;
    double rate = 0;
    std::vector<float> gradients;
  };
  void count_staleness();
  std::vector<Work> receive_answers(bool with_values);
  void send(const Push& push);
  void write_own();

  Communicator& pushes_;
  Communicator& answers_;
  ParameterStorage& storage_;
  SyncOptions options_;
  Roles roles_;
  std::vector<Answer> answered_;  // by server: its last answer
  std::deque<OwnWrite> own_;      // own gradients that some server's values might lack
  bool writes_own_ = false;
  int64_t most_own_ = 0;  // maximum number of elements of own_ at once
  Staleness staleness_;
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
};

}  // namespace tutti::training
