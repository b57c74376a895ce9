// Ranks with values of their own: each updates them by its own gradients, and then exchanges them
// with all others now and then (local_sgd.h, diloco.h), or with some of them (gossip.h,
// push_sum.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/wire_format.h"
#include "collectives/communicator.h"
#include "training/parallel/storage.h"
#include "training/parallel/sync_options.h"
#include "training/parallel/synchronizer.h"

namespace tutti::training {

class Averaging : public Synchronizer {
 public:
  // `storage`, of stage 0 with f32 values or masters, outlives it.
  explicit Averaging(ParameterStorage& storage);

  void begin_step(const std::vector<int64_t>&) override { storage_.zero_gradients(); }
  void finish_gradients() override {}
  bool sums_gradients() const override { return false; }
  void after_update() final;
  void publish_values() override {}

  // The number of updates so far.
  void visit_state(StateVisitor& visitor) override;

  std::chrono::nanoseconds waited() const override { return waited_; }
  double bytes_sent() const override { return bytes_sent_; }
  void observe(const Observer& observer) override { observer_ = observer; }

 protected:
  // After each update, on all ranks; the first one has the number 1.
  virtual void exchange(int64_t update) = 0;

  ParameterStorage& storage() { return storage_; }
  Communicator& ranks() { return ranks_; }
  int64_t updates() const { return updates_; }
  // Counts the bytes of an all-reduce of so many values.
  void count_all_reduce(int64_t values, WireFormat wire = WireFormat::plain);
  // Sends a row to one rank and receives one from another.
  void trade(std::span<const float> row, int to, std::span<float> other, int from);
  Work send(std::span<const float> row, int to);
  // Tells the observer what was done since `from`.
  void tell(const char* what, int part, std::chrono::steady_clock::time_point from) const;
  // Adds the time from construction to destruction to the time that this rank waited.
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
  Communicator ranks_;
  int64_t updates_ = 0;
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
  Observer observer_;
};

// Of a kind that has_own_values(). `seed`: of random peers.
std::unique_ptr<Synchronizer> make_averaging(ParameterStorage& storage, const SyncOptions& options,
                                             uint64_t seed);

}  // namespace tutti::training
