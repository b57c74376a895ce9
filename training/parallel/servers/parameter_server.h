// Trains through parameter servers. Each rank computes, serves, or does both (roles.h), for a
// stretch of steps. During a stretch a rank waits only for the servers' replies. Between stretches
// all ranks synchronize and then have the same values.
//
//   rank 0   compute | push, pull | compute | push, pull | ... |
//   rank 1   compute .......... | push, pull | compute ....... | all have the servers' values
//   rank 2   serve: update, answer, update, update, answer ... |
//
// Parameters are sharded as in ZeRO stage 1 (storage.h): the owner of a shard's masters serves it.
// A rank that computes and serves uses a second thread for serving.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/parallel/replay/order_files.h"
#include "training/parallel/servers/server.h"
#include "training/parallel/servers/worker.h"
#include "training/parallel/synchronizer.h"

namespace tutti::training {

class ParameterServer : public Synchronizer {
 public:
  // Collective. `storage` must be of stage 1, have separate masters and the owners that `options`
  // choose, and outlive the object.
  ParameterServer(ParameterStorage& storage, const SyncOptions& options);

  struct Stretch {
    int64_t first = 1;              // the stretch's first step
    std::span<const double> rates;  // learning rates, by step
    // Computes this rank's gradients for a part of a step's samples; `step` (in the stretch) and
    // `part` are counted from 0. Returns the factor by which servers multiply the gradients, or
    // nothing if the part had no targets; `ps` and `ssp` ignore the result.
    std::function<std::optional<double>(int64_t step, int part)> compute;
    UpdateShard update;
    bool own_writes = false;  // see Worker::begin_stretch()
  };
  // Runs a stretch. Collective: blocks until all its updates are done and this rank has the
  // resulting values. After an error the caller must call abort(), otherwise other ranks keep
  // waiting.
  void run(const Stretch& stretch);
  std::optional<int> recorded_ranks(int64_t first) override;
  void abort(const std::string& reason) override;

  const Roles& roles() const { return roles_; }
  bool works() const { return roles_.works(ranks_.rank()); }
  bool serves() const { return roles_.serves(ranks_.rank()); }
  // Returns a communicator of the serving ranks, for sums of norms. Only serving ranks may call
  // this.
  Communicator& servers() { return servers_; }
  Staleness staleness() const { return worker_ ? worker_->staleness() : Staleness(); }

  void begin_step(const std::vector<int64_t>& passes) override;
  void after_backward(int unit) override { storage_.end_micro_batch(unit); }
  void finish_gradients() override {}
  void after_update() override {}
  // Sends the owners' values to all ranks.
  void publish_values() override;

  int64_t bytes() const override;
  std::chrono::nanoseconds waited() const override;
  double bytes_sent() const override;
  void observe(const Observer& observer) override { observer_ = observer; }

 private:
  void work(const Stretch& stretch);
  void work_in_order(const Stretch& stretch);
  void take_parts(const Stretch& stretch);
  int64_t exchange(const Push& push, const Stretch& stretch, int64_t step);
  void serve(const Stretch& stretch, const UpdateOrder* recorded);
  void serve_beside_work(const Stretch& stretch, const UpdateOrder* recorded);
  StretchOrder order_of(const Stretch& stretch) const;
  void record_spans();

  ParameterStorage& storage_;
  SyncOptions options_;
  Communicator ranks_;
  Roles roles_;
  std::optional<Server> server_;
  std::optional<Worker> worker_;
  // Declared after the memory of messages in flight, so that the communicators are destroyed first.
  Communicator pushes_;
  Communicator answers_;
  Communicator servers_;
  OrderFiles files_;
  // Time that this rank has waited outside its worker: for messages if it only serves, and for the
  // other ranks at the end of a stretch.
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
  Observer observer_;
};

}  // namespace tutti::training
