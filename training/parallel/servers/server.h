// A server owns the masters and the optimizer state of its shard, updates them by the workers'
// gradients, and sends the values to the workers.
//
//   ps, ssp:B   The gradients of a clock are summed once all workers have sent them, in the order
//               of deterministic mode, and are one update: version v contains clocks 0 to v-1. A
//               worker that has sent clock c continues once version c + 1 - B exists; `ps` has B=0.
//   async       Each worker's gradients are a separate update, applied on arrival.
//
// Rows of gradients stay in their receive buffers until their update. A worker sends the gradients
// of clock c only after those of clock c - B - 1 were applied, so the server has B + 1 rows for
// each worker:
//
//   worker 0   | clock 3 | clock 4 | clock 5 |      B = 2, version 3. The gradients of clock 3 are
//   worker 1   | clock 3 |         |         |      complete, so the server now updates by them.
//
// Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server,
// NeurIPS 2013; Dean et al.: Large scale distributed deep networks, NeurIPS 2012 (Downpour SGD); Li
// et al.: Scaling distributed machine learning with the parameter server, OSDI 2014. Ho et al.
// apply gradients on arrival in `ssp` too; here a clock is one update, so that momentum and Adam
// have their usual meaning.
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
  std::span<const OwnedPiece> pieces;  // the pieces of the shard, with the gradients to apply
  int64_t step = 0;                    // step in the stretch, counted from 0
  double factor = 1;                   // factor of the gradients
  double rate_factor = 1;              // factor of the learning rate
};
using UpdateShard = std::function<void(const ShardUpdate&)>;

// Serves this rank's shard. Only one thread may use it.
class Server {
 public:
  // Creates a server. Workers send to servers on `pushes`, and servers send to workers on
  // `answers`. Both communicators have the ranks of the storage. The storage must outlive the
  // server. The communicators must be valid while the server is used, and be destroyed before it,
  // because their destruction ends messages that are still in flight after an error.
  Server(Communicator& pushes, Communicator& answers, ParameterStorage& storage,
         const SyncOptions& options);

  // Receives the pushes of a stretch of `steps` steps, on average one per step and worker, and
  // applies their gradients with `update`. Blocks until all are applied. If `recorded` is not null,
  // applies them in the recorded order (--replay). Throws what `update` throws, and the
  // communicators' errors.
  void serve(int64_t steps, const UpdateShard& update, const UpdateOrder* recorded);
  // Returns the order in which the last serve() applied updates.
  const UpdateOrder& order() const { return order_; }

  // The time of an update, or of waiting for the next message, for traces.
  struct Span {
    bool waits = false;
    int worker = 0;
    std::chrono::steady_clock::time_point from, to;
  };
  // Returns the spans of the last stretch.
  const std::vector<Span>& spans() const { return spans_; }
  int64_t bytes() const;  // Returns the bytes of memory in use.
  // Returns the bytes sent to other ranks since construction.
  double bytes_sent() const { return bytes_sent_; }

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
  void answer_ranks_that_may_proceed();
  void answer(const Arrival& arrival, const Answer& answer);
  void send_values(int worker);
  void finish_sends();
  std::span<const OwnedPiece> pieces_with(Tensor gradients);

  Communicator& pushes_;
  Communicator& answers_;
  ParameterStorage& storage_;
  SyncOptions options_;
  Roles roles_;
  Memory<std::byte> rows_;    // received gradients, by worker and clock
  Memory<std::byte> values_;  // the shard in the values' type, if that is not the masters' type
  int64_t values_version_ = -1;
  std::vector<OwnedPiece> pieces_;

  // state of a stretch
  int64_t steps_ = 0;
  int64_t version_ = 0;
  int64_t next_part_ = 0;
  UpdateOrder order_;
  std::deque<Arrival> arrived_;
  std::vector<int64_t> counts_;   // ps, ssp: for each row, the number of workers that have sent it
  std::vector<int64_t> pulled_;   // async: for each worker, the version of its values
  std::vector<Arrival> waiting_;  // ps, ssp: requests of workers that wait for their answer
  std::vector<Span> spans_;

  std::deque<Answer> sent_;  // answers in flight
  std::vector<Work> sends_;
  double bytes_sent_ = 0;
};

}  // namespace tutti::training
