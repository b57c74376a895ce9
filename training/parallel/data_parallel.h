// Data parallelism with every ZeRO stage: ranks compute gradients of their own micro-batches, and
// buckets of them are summed over ranks while backward is still under way.
//
//   backward   |head|h.3 |h.2 |h.1 |h.0 |embed|
//   buckets         |--0-|---1-----|----2-----|      strictly in this order on every rank
//
// Stage 0 sums each bucket on all ranks (all-reduce). Stages 1 to 3 sum it at its owners only
// (reduce-scatter) and, once these have updated their shards, gather the values (all-gather): never
// all-reduce and then scatter. Stage 3 keeps no whole values: it gathers the buckets of a unit
// before the unit runs, those of the next one meanwhile, and lets go of them after.
//
// A step of several micro-batches adds their gradients up, and sums over ranks once. Stages 2 and 3
// would have to keep whole gradients for that: where they may, they sum each micro-batch's over
// ranks by themselves, and owners add up the shards (StorageOptions::shard_sums).
//
// Li et al.: PyTorch distributed, 2020 (buckets); Rajbhandari et al.: ZeRO, 2020 (stages).
//
// Each bucket is summed over the ranks of its group (storage.h). Sums run over them in the order
// that the communicator has; in deterministic mode that depends on nothing but the number of ranks,
// and so do the bits: not on stage or bucket size.
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

// What a hook remembers from step to step, for checkpoints.
struct HookState {
  std::string name;
  Tensor values;  // 1 x count in f32: the hook's memory
  RowKind kind = RowKind::same;
};

// Replaces the all-reduce of buckets (hooks/). start() begins to sum `gradients` over ranks;
// finish() returns when the sum is in place. Every rank starts its buckets in one order and
// finishes them in the same order.
class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;
  // Returns true where the hook sums this bucket; the others are summed as without a hook.
  virtual bool takes(int /*bucket*/) const { return true; }
  // The last ZeRO stage that it works in: 0 or 1, where gradients are whole on each rank.
  virtual int last_stage() const { return 0; }
  // Called before any bucket is started, by all ranks in the same order: may begin collectives that
  // buckets started before need.
  virtual void proceed() {}
  virtual void start(Communicator& communicator, int bucket, Tensor gradients) = 0;
  virtual void finish(int bucket, Tensor gradients) = 0;
  // Whether a started bucket may be finished without waiting; makes progress. Buckets are then
  // finished during backward, on each rank at its own time, so it must be false for one whose
  // finish() begins a collective.
  virtual bool test(int bucket) { return false; }
  // Whether a step's sums depend on those before. Then all gradients are of one scale, and states()
  // tells what is remembered; between two steps it may be written. The arguments are start()'s.
  virtual bool remembers() const { return false; }
  virtual std::vector<HookState> states(Communicator& communicator, DType gradients) { return {}; }
  // Time of finish() that was spent computing, since construction; the rest is waiting.
  virtual std::chrono::nanoseconds computed() const { return {}; }
  virtual int64_t bytes() const = 0;  // of memory that it holds
  // The bytes of elements that a rank sends and receives for the bucket that was finished last
  // time, counted as for an all-reduce.
  virtual int64_t payload_bytes(int bucket, Tensor gradients) const = 0;
};

struct DataParallelOptions {
  bool overlap = true;  // false: wait for each bucket's sum before backward goes on
  // A parameter that no unit's backward reached is an error that names it; or, if allowed, its
  // gradient is zero.
  bool allow_unused = false;
  // Parameters that another pipeline stage uses too: complete only when join() was called. Sums of
  // their buckets are deterministic in any mode, so that both stages' copies stay the same.
  std::vector<int> joined;
  // Deterministic mode: two units' gradients of one parameter (tied embeddings) are each summed
  // over ranks before they are added to each other, so that the bits do not depend on the number of
  // data ranks. All ranks must call the last backward of such a parameter in the same order with
  // respect to other buckets.
  bool sums_uses_apart = false;
};

class DataParallel : public Synchronizer {
 public:
  // `model` and `storage` outlive it. Throws Error(invalid_argument) for a stage of ZeRO that the
  // hook does not work in.
  DataParallel(Model& model, ParameterStorage& storage, const DataParallelOptions& options = {},
               std::unique_ptr<CommunicationHook> hook = nullptr);

  // Waits for what is under way. After an error nobody else may be there to wait for: then the
  // communicator is aborted first.
  ~DataParallel() override;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Every rank's owned values become everybody's. In stages 1 and 2 the gathers go on while the
  // next forward begins.
  void publish_values() override;
  void finish_values() override;
  // A bucket is summed when all backwards of its units are done.
  void begin_step(const std::vector<int64_t>& passes) override;
  void begin_step(int64_t passes);  // of all units
  void begin_join(int parameter) override;
  void join(int parameter) override;
  // Returns when the gradients of owned pieces are summed over all ranks. Throws
  // Error(invalid_argument) naming parameters that no backward reached.
  void finish_gradients() override;

  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void before_weights(int unit) override { acquire_gradients(unit); }
  void after_weights(int unit) override;

  // Shows what the hook remembers.
  void visit_state(StateVisitor& visitor) override;
  int64_t bytes() const override { return hook_ == nullptr ? 0 : hook_->bytes(); }  // the hook's

  std::chrono::nanoseconds waited() const override { return waited_; }
  // By the volume of each collective: (N-1)/N of a bucket for reduce-scatter and all-gather, twice
  // that for all-reduce.
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
  // The buckets that the unit's parameters are in; none for a unit that there is not.
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
  void sum_apart(int parameter, std::span<const Tensor> uses);
  void keep_on_first(int parameter);
  void keep_shared_uses_apart(const std::vector<int64_t>& passes);
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
  std::deque<int> under_way_;  // buckets whose sums over ranks are, in the order of their start
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
  Observer observer_;
};

}  // namespace tutti::training
