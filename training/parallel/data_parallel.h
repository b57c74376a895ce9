// Data parallelism with all ZeRO stages: ranks compute gradients of their own micro-batches, and
// buckets of gradients are reduced over ranks during backward.
//
//   backward   |head|h.3 |h.2 |h.1 |h.0 |embed|
//   buckets         |--0-|---1-----|----2-----|      strictly in this order on every rank
//
// Stage 0 sums each bucket on all ranks (all-reduce). Stages 1 to 3 sum it only at its owners
// (reduce-scatter), which update their shards; the values are then gathered (all-gather). Stage 3
// keeps no whole values: it gathers the buckets of a unit before the unit runs, prefetches the
// buckets of the next unit while the unit runs, and releases the unit's buckets afterwards.
//
// A step of several micro-batches accumulates their gradients, and reduces the sums once. Stages 2
// and 3 need memory for whole gradients to do so. With StorageOptions::shard_sums they instead
// reduce each micro-batch's gradients separately, and owners accumulate the shards.
//
// Li et al.: PyTorch distributed, 2020 (buckets); Rajbhandari et al.: ZeRO, 2020 (stages).
//
// Each bucket is summed over the ranks of its group (storage.h), in the communicator's order of
// summation. In deterministic mode that order, and therefore the bits, depend on the number of
// ranks alone, not on stage or bucket size.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/model.h"
#include "training/parallel/bucket_progress.h"
#include "training/parallel/storage.h"
#include "training/parallel/synchronizer.h"

namespace tutti::training {

// A state that a hook keeps from step to step, for checkpoints.
struct HookState {
  std::string name;
  Tensor values;  // 1 x count in f32, in the hook's memory
  RowKind kind = RowKind::same;
};

// Replaces the all-reduce of buckets (hooks/). start() begins to sum `gradients` over ranks;
// finish() blocks until `gradients` contains the sum. All ranks start their buckets in the same
// order and finish them in that order.
class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;
  // Returns true if the hook sums this bucket; other buckets are summed as without a hook.
  virtual bool takes(int /*bucket*/) const { return true; }
  // Returns the highest ZeRO stage that the hook supports: 0 or 1, in which each rank has whole
  // gradients.
  virtual int last_stage() const { return 0; }
  // Called by all ranks, in the same order, before the reduction of each bucket starts, including
  // buckets that the hook does not take. May begin collectives that earlier buckets need.
  virtual void proceed() {}
  virtual void start(Communicator& communicator, int bucket, Tensor gradients) = 0;
  virtual void finish(int bucket, Tensor gradients) = 0;
  // Makes progress, and returns true if finish() of this started bucket would not block. Such
  // buckets are finished during backward, on each rank at a different time, so test() must return
  // false if finish() begins a collective.
  virtual bool test(int bucket) { return false; }
  // remembers() returns true if a step's sums depend on earlier steps. All steps' gradients must
  // then have the same scale. states() returns the hook's states, which the caller may change
  // between two steps. `communicator`: as for start(); `gradients`: type of the gradients.
  virtual bool remembers() const { return false; }
  virtual std::vector<HookState> states(Communicator& communicator, DType gradients) { return {}; }
  // Returns true if each rank computes the sums by matrix products, whose bits depend on its
  // processor (same_products.h).
  virtual bool decompresses_by_products() const { return false; }
  // Returns the time that finish() has spent computing since construction; the rest of its time is
  // waiting.
  virtual std::chrono::nanoseconds computed() const { return {}; }
  virtual int64_t bytes() const = 0;  // Returns the hook's memory in bytes.
  // Returns the payload P in bytes of the bucket that was finished last: each of N ranks has sent 2
  // P (N - 1) / N bytes, as in an all-reduce of P bytes.
  virtual int64_t payload_bytes(int bucket, Tensor gradients) const = 0;
};

struct DataParallelOptions {
  bool overlap = true;  // false: backward waits for each bucket's sum
  // Treatment of parameters that no unit's backward reaches. False: throws an error that names the
  // parameter. True: the parameter's gradient is zero.
  bool allow_unused = false;
  // Parameters that another pipeline stage uses too; their gradients are complete only after
  // join(). Sums of their buckets are always deterministic, so that the copies on both stages stay
  // equal.
  std::vector<int> joined;
  // Deterministic mode: if two units use one parameter (tied embeddings), sum each unit's gradient
  // over ranks before adding the two, so that the bits do not depend on the number of data ranks.
  // On all ranks, the last backward that uses such a parameter must be at the same place in the
  // order of reductions.
  bool sums_uses_separately = false;
};

class DataParallel : public Synchronizer {
 public:
  // Creates the synchronizer; `model` and `storage` must outlive it. Throws Error(invalid_argument)
  // if there is a hook and it does not support the ZeRO stage or the model is sharded, and if
  // allow_unused is set although each micro-batch's gradients are added to shards.
  DataParallel(Model& model, ParameterStorage& storage, const DataParallelOptions& options = {},
               std::unique_ptr<CommunicationHook> hook = nullptr);

  // Waits for collectives in flight. After an error, when peers may be gone, aborts the
  // communicators first.
  ~DataParallel() override;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Makes the owners' new values available to all ranks. Stages 1 and 2 start gathers, which
  // overlap with the start of the next forward. Stage 3 discards old gathered values, so that the
  // next forward gathers new ones. Stage 0 communicates nothing.
  void publish_values() override;
  void finish_values() override;
  // Starts a step; `passes` has, for each unit, the number of its backward calls. A bucket is
  // reduced when all backward calls of its units are done (if gradients are added to shards: all
  // calls of a micro-batch). Throws Error(invalid_argument) if a unit has several calls and
  // StorageOptions::one_pass is set.
  void begin_step(const std::vector<int64_t>& passes) override;
  void begin_step(int64_t passes);  // the same number of backward calls for all units
  void begin_join(int parameter) override;
  void join(int parameter) override;
  // Blocks until the gradients of owned pieces are summed over all ranks. Throws
  // Error(invalid_argument), which names the parameters, if no backward reached some parameters and
  // allow_unused is false.
  void finish_gradients() override;

  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void before_weights(int unit) override { acquire_gradients(unit); }
  void after_weights(int unit) override;

  // Visits the hook's state.
  void visit_state(StateVisitor& visitor) override;
  // Returns the hook's memory in bytes.
  int64_t bytes() const override { return hook_ == nullptr ? 0 : hook_->bytes(); }

  std::chrono::nanoseconds waited() const override { return waited_; }
  // Returns the bytes sent, counting the minimum volume of each collective: (N-1)/N of a bucket for
  // reduce-scatter and all-gather, twice that for all-reduce.
  double bytes_sent() const override { return bytes_sent_; }
  void observe(const Observer& observer) override { observer_ = observer; }

 private:
  enum class ValueState { absent, gathering, present };
  using Time = std::chrono::steady_clock::time_point;

  struct BucketState {
    ValueState values = ValueState::present;
    Work gather;
    Time gather_started;
    Work reduction;
    Time reduction_started;
  };

  int bucket_count() const { return static_cast<int>(buckets_.size()); }
  BucketState& state(int bucket) { return buckets_[static_cast<size_t>(bucket)]; }
  Unit& unit(int index) { return *model_.units()[static_cast<size_t>(index)]; }
  // Returns the buckets of the unit's parameters; none for a unit that does not exist.
  const std::vector<int>& buckets_of(int unit) const;
  bool holds_values() const { return storage_.whole_values(); }
  bool is_hooked(int bucket) const { return hook_ != nullptr && hook_->takes(bucket); }

  void start_gather(int bucket);
  void finish_gather(int bucket);
  void need_values(int unit);
  void prefetch(int unit);
  void read_ahead(int unit);
  void let_go(int unit, int next);

  void acquire_gradients(int unit);
  void hold_gradients(int bucket);
  void contribute(int parameter);
  void sum_separately(int parameter, std::span<const Tensor> uses);
  void keep_on_first(int parameter);
  void keep_shared_uses_separate(const std::vector<int64_t>& passes);
  void launch_ready();
  void launch(int bucket);
  bool finish_first(bool blocking);
  void finish_all();
  void poll();
  std::string unused_parameters() const;

  void wait(Work& work);
  void count_bytes(int bucket, int64_t bytes, int times);
  void report(const char* what, int bucket, Time from);

  Model& model_;
  ParameterStorage& storage_;
  DataParallelOptions options_;
  std::unique_ptr<CommunicationHook> hook_;
  std::vector<std::vector<int>> unit_buckets_;
  std::vector<BucketState> buckets_;
  BucketProgress progress_;
  std::deque<int> in_flight_;  // buckets whose reduction is in flight, in the order of their start
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
  Observer observer_;
};

}  // namespace tutti::training
