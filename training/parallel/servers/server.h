// A server: it has the masters of its shard and the optimizer's state, updates them by what workers
// push, and tells them the values.
//
//   ps, ssp:B   a clock's gradients are summed once all workers have sent theirs, in the order of
//               deterministic mode, and are one update: version v has clocks 0 to v-1. A worker
//               that has sent clock c goes on once version c + 1 - B is there; `ps` has B = 0.
//   async       each worker's gradients are an update of their own, when they come.
//
// Rows of gradients stay where they were received until their update. A worker sends a clock once
// clock - B - 1 is in the values, so it has B + 1 rows:
//
//   worker 0   | clock 4 | clock 5 | clock 3 |      B = 2
//   worker 1   |         |         | clock 3 |      version 3: clock 3 waits for nobody else
//
// Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server,
// NeurIPS 2013; Dean et al.: Large scale distributed deep networks, NeurIPS 2012 (Downpour SGD); Li
// et al.: Scaling distributed machine learning with the parameter server, OSDI 2014. Theirs adds
// what comes at once with `ssp` too; here a clock is one update, so that momentum and Adam mean
// what they mean without staleness.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/owned_piece.h"
#include "training/parallel/replay/update_order.h"
#include "training/parallel/servers/messages.h"
#include "training/parallel/servers/roles.h"
#include "training/parallel/storage.h"

namespace tutti::training {

// One update of the shard.
struct ShardUpdate {
  std::span<const OwnedPiece> pieces;  // of the shard, with the gradients to take
  int64_t step = 0;                    // of the stretch, from 0
  double factor = 1;                   // of the gradients
  double rate_factor = 1;              // of the learning rate
};
using UpdateShard = std::function<void(const ShardUpdate&)>;

// One thread.
class Server {
 public:
  // Workers send to servers on the first communicator, servers to workers on the second one. Their
  // ranks are those of the storage. All three outlive this; on an error the communicators end
  // before it, and with them what is in flight.
  Server(Communicator& pushes, Communicator& answers, ParameterStorage& storage,
         const SyncOptions& options);

  // Serves `steps` clocks of each worker; blocks until their updates are made. With `recorded` in
  // that order. Throws what `update` throws, and the communicators' errors.
  void serve(int64_t steps, const UpdateShard& update, const UpdateOrder* recorded);
  // Of the last stretch.
  const UpdateOrder& order() const { return order_; }

  // An update, or the wait for the next message, for traces.
  struct Span {
    bool waits = false;
    int worker = 0;
    std::chrono::steady_clock::time_point from, to;
  };
  const std::vector<Span>& spans() const { return spans_; }  // of the last stretch
  int64_t bytes() const;                                     // of memory
  double bytes_sent() const { return bytes_sent_; }          // to other ranks, since construction

 private:
  struct Arrival {
    int worker = 0;
    Push push;
  };

  int workers() const { return roles_.workers(); }
  size_t rows_of_a_worker() const { return static_cast<size_t>(options_.bound) + 1; }
  Tensor row(int worker, int64_t clock) const;
  void begin(int64_t steps);
  void receive();
  std::optional<Arrival> next_arrival(const UpdateOrder* recorded);
  void check_recorded(const AppliedPush& recorded) const;
  void take(const Arrival& arrival, const UpdateShard& update);
  void update_alone(const Arrival& arrival, const UpdateShard& update);
  void count_in(const Arrival& arrival, const UpdateShard& update);
  void update_clock(const UpdateShard& update);
  void answer_those_who_may_go_on();
  void answer(const Arrival& arrival, const Answer& answer);
  void send_values(int worker);
  void finish_sends();
  std::span<const OwnedPiece> pieces_with(Tensor gradients);

  Communicator& pushes_;
  Communicator& answers_;
  ParameterStorage& storage_;
  SyncOptions options_;
  Roles roles_;
  Memory<std::byte> rows_;    // of gradients: by worker, by clock
  Memory<std::byte> values_;  // the shard in the values' type, where that is not the masters'
  int64_t values_version_ = -1;
  std::vector<OwnedPiece> pieces_;

  // Of a stretch.
  int64_t steps_ = 0;
  int64_t version_ = 0;
  int64_t next_part_ = 0;
  UpdateOrder order_;
  std::deque<Arrival> arrived_;
  std::vector<int64_t> counts_;   // ps, ssp: by row, the workers that have sent it
  std::vector<int64_t> pulled_;   // async: by worker, the version that it has
  std::vector<Arrival> waiting_;  // ps, ssp: workers that are not answered yet
  std::vector<Span> spans_;

  std::deque<Answer> sent_;  // while they are sent
  std::vector<Work> sends_;
  double bytes_sent_ = 0;
};

}  // namespace tutti::training
