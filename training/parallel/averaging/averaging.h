// Base class of synchronizers with values that differ between ranks: each rank updates its values
// by its own gradients, and from time to time averages them with all other ranks (local_sgd.h,
// diloco.h, easgd.h, federated.h), or with some of them (gossip.h, push_sum.h, ad_psgd.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/reduce_op.h"
#include "base/wire_format.h"
#include "collectives/communicator.h"
#include "training/parallel/storage.h"
#include "training/parallel/sync_options.h"
#include "training/parallel/synchronizer.h"

namespace tutti::training {

class Averaging : public Synchronizer {
 public:
  // Creates the synchronizer. `storage` must be of stage 0, have f32 values or masters, and outlive
  // it.
  Averaging(ParameterStorage& storage, const SyncOptions& options);

  void begin_step(const std::vector<int64_t>&) override { storage_.zero_gradients(); }
  void finish_gradients() override {}
  bool sums_gradients() const override { return false; }
  void after_update() final;
  void publish_values() override {}

  // Visits the number of updates so far.
  void visit_state(StateVisitor& visitor) override;
  // Returns false if the state that was read was saved by another kind of synchronizer, or by a job
  // whose workers had another number of pipeline stages or tensor-parallel ranks. All ranks then
  // start from the mean of the values.
  bool takes_own_values() const override { return same_way_; }

  int64_t bytes() const override;
  std::chrono::nanoseconds waited() const override { return waited_; }
  double bytes_sent() const override { return bytes_sent_; }
  void observe(const Observer& observer) override { observer_ = observer; }

 protected:
  // Called after each update, on all ranks; updates count from 1.
  virtual void exchange(int64_t update) = 0;

  ParameterStorage& storage() { return storage_; }
  Communicator& ranks() { return ranks_; }
  const SyncOptions& options() const { return options_; }
  int64_t updates() const { return updates_; }
  // Collective. Replaces the buffer by the mean of the ranks' buffers.
  void average(Buffer buffer);
  void all_reduce(Buffer buffer, ReduceOp op);
  // Returns true if a worker consists of several ranks. They may hold copies of a parameter at
  // different places of their rows, so sums must not depend on the place: they are deterministic.
  bool is_divided() const { return options_.worker_stages * options_.worker_tensor_ranks > 1; }
  // Replaces `own` by its mean with `other`, the values of another rank.
  static void average_pair(std::span<float> own, std::span<const float> other);
  void count_all_reduce(uint64_t bytes);
  void count_sent(uint64_t bytes) { bytes_sent_ += static_cast<double>(bytes); }
  // Sends a row to rank `to` and receives one from rank `from`.
  void exchange_rows(std::span<const float> row, int to, std::span<float> other, int from);
  Work send_async(std::span<const float> row, int to);
  void observe_span(const char* what, int part, std::chrono::steady_clock::time_point from) const;
  // Adds its lifetime to the time that this rank has waited.
  class Waiting {
   public:
    explicit Waiting(Averaging& owner) : owner_(owner) {}
    ~Waiting() { owner_.waited_ += std::chrono::steady_clock::now() - start_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Averaging& owner_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

 private:
  ParameterStorage& storage_;
  SyncOptions options_;
  Communicator ranks_;
  int64_t updates_ = 0;
  bool same_way_ = true;
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
  Observer observer_;
};

// Creates a synchronizer of the kind in `options`, which must be one whose values differ between
// ranks. `seed`: for random peers and clients.
std::unique_ptr<Synchronizer> make_averaging(ParameterStorage& storage, const SyncOptions& options,
                                             uint64_t seed);

}  // namespace tutti::training
