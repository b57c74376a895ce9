#include "training/parallel/data_parallel.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

// Maximum number of whole gradient buckets that a stage with sharded gradients keeps during their
// reduction; backward waits instead of using more memory.
constexpr int kGradientBucketsInFlight = 2;

std::vector<std::vector<int>> parameters_by_unit(Model& model) {
  std::vector<std::vector<int>> used;
  for (size_t unit = 0; unit < model.units().size(); ++unit) {
    used.push_back(model.parameters().used_by(static_cast<int>(unit)));
  }
  return used;
}

}  // namespace

DataParallel::DataParallel(Model& model, ParameterStorage& storage,
                           const DataParallelOptions& options,
                           std::unique_ptr<CommunicationHook> hook)
    : model_(model),
      storage_(storage),
      options_(options),
      hook_(std::move(hook)),
      unit_buckets_(model.units().size()),
      buckets_(storage.layout().buckets.size()),
      progress_(storage.layout(), parameters_by_unit(model), options.joined,
                storage.adds_to_shards()) {
  const bool cut = std::ranges::any_of(model.parameters().specs(), [](const ParameterSpec& spec) {
    return !spec.placement.is_whole();
  });
  if (hook_ != nullptr && cut) {
    throw Error(ErrorCode::invalid_argument,
                "compression is not available for a model that is sharded over the mesh",
                {.cause = "error feedback is kept per parameter, not per shard",
                 .remedy = "remove the compression"});
  }
  if (options.allow_unused && storage.adds_to_shards()) {
    throw Error(ErrorCode::invalid_argument,
                "sharded gradient accumulation is not available with unused parameters",
                {.cause = "ranks would reduce buckets in different orders",
                 .remedy = "clear StorageOptions::shard_sums"});
  }
  if (hook_ != nullptr && storage.options().stage > hook_->last_stage()) {
    throw Error(ErrorCode::invalid_argument,
                cat("gradients cannot be compressed in ZeRO stage ", storage.options().stage),
                {.remedy = "use stage 0, or remove the compression"});
  }
  for (size_t unit = 0; unit < unit_buckets_.size(); ++unit) {
    std::vector<int>& buckets = unit_buckets_[unit];
    for (const int parameter : model.parameters().used_by(static_cast<int>(unit))) {
      const Slot& slot = storage.layout().slots[static_cast<size_t>(parameter)];
      if (slot.parameter == parameter) buckets.push_back(slot.bucket);
    }
    std::ranges::sort(buckets);
    buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  }
  for (BucketState& bucket : buckets_) {
    bucket.values = holds_values() ? ValueState::present : ValueState::absent;
  }
}

const std::vector<int>& DataParallel::buckets_of(int unit) const {
  static const std::vector<int> kNone;
  const bool known = unit >= 0 && unit < static_cast<int>(unit_buckets_.size());
  return known ? unit_buckets_[static_cast<size_t>(unit)] : kNone;
}

DataParallel::~DataParallel() {
  const auto in_flight = [this](int bucket) {
    return state(bucket).values == ValueState::gathering ||
           std::ranges::count(in_flight_, bucket) > 0;
  };
  bool aborted = false;
  for (int bucket = 0; bucket < bucket_count(); ++bucket) {
    if (!in_flight(bucket)) continue;
    try {
      if (std::uncaught_exceptions() > 0 && !std::exchange(aborted, true)) {
        for (Communicator ranks : storage_.groups().ranks) {
          ranks.abort("training failed with an error");
        }
      }
      state(bucket).gather.wait();
      state(bucket).reduction.wait();
      if (is_hooked(bucket)) hook_->finish(bucket, storage_.gradients(bucket));
    } catch (const std::exception&) {
      // A collective that failed has ended as well.
    }
  }
}

// Values.

void DataParallel::finish_values() {
  for (int bucket = 0; bucket < bucket_count(); ++bucket) {
    if (state(bucket).values == ValueState::gathering) finish_gather(bucket);
  }
}

void DataParallel::publish_values() {
  if (storage_.options().stage == 0) return;
  // Forward needs the last buckets first.
  for (int bucket = bucket_count() - 1; bucket >= 0; --bucket) {
    if (state(bucket).values == ValueState::gathering) finish_gather(bucket);
    if (holds_values()) {
      start_gather(bucket);
    } else if (state(bucket).values == ValueState::present) {
      storage_.release_values(bucket);  // left from the previous step
      state(bucket).values = ValueState::absent;
    }
  }
}

void DataParallel::start_gather(int bucket) {
  BucketState& at = state(bucket);
  if (!holds_values()) storage_.acquire_values(bucket);
  storage_.await_own_values(bucket);
  const Tensor all = storage_.values(bucket);
  at.gather_started = Clock::now();
  at.gather = storage_.ranks_of(bucket).all_gather_async(
      as_const(as_buffer(storage_.own_values(bucket))), as_buffer(all));
  at.values = ValueState::gathering;
  count_bytes(bucket, static_cast<int64_t>(all.bytes()), 1);
}

void DataParallel::finish_gather(int bucket) {
  wait(state(bucket).gather);
  state(bucket).values = ValueState::present;
  storage_.evict_own_values(bucket);
  report("all_gather", bucket, state(bucket).gather_started);
}

void DataParallel::need_values(int unit) {
  prefetch(unit);
  for (const int bucket : buckets_of(unit)) {
    if (state(bucket).values == ValueState::gathering) finish_gather(bucket);
  }
}

void DataParallel::prefetch(int unit) {
  for (const int bucket : buckets_of(unit)) {
    if (state(bucket).values == ValueState::absent) start_gather(bucket);
  }
}

void DataParallel::let_go(int unit, int next) {
  if (holds_values()) return;
  for (const int bucket : buckets_of(unit)) {
    const std::vector<int>& kept = buckets_of(next);
    if (state(bucket).values != ValueState::present || std::ranges::count(kept, bucket) > 0) {
      continue;
    }
    storage_.release_values(bucket);
    state(bucket).values = ValueState::absent;
  }
}

void DataParallel::before_forward(int unit) {
  need_values(unit);
  if (options_.overlap) prefetch(unit + 1);
  read_ahead(options_.overlap ? unit + 2 : unit + 1);
}

// If shards are in files, starts to load the shards that the gathers of the unit's buckets will
// send.
void DataParallel::read_ahead(int unit) {
  for (const int bucket : buckets_of(unit)) {
    if (state(bucket).values == ValueState::absent) storage_.fetch_own_values(bucket);
  }
}

void DataParallel::after_forward(int unit) {
  const bool last = unit + 1 == static_cast<int>(unit_buckets_.size());
  let_go(unit, last ? unit : unit + 1);  // backward begins with the last unit
}

// Gradients.

void DataParallel::begin_step(int64_t passes) {
  begin_step(std::vector<int64_t>(unit_buckets_.size(), passes));
}

void DataParallel::begin_step(const std::vector<int64_t>& passes) {
  const int64_t most = passes.empty() ? 0 : std::ranges::max(passes);
  if (most > 1 && storage_.options().one_pass) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("a step of ", most, " micro-batches per rank, but there is only memory for one"),
        {.cause = "StorageOptions::one_pass allocates no memory for gradient accumulation",
         .remedy = "clear StorageOptions::one_pass"});
  }
  keep_shared_uses_separate(passes);
  storage_.zero_gradients();
  storage_.begin_sums(passes);
  progress_.begin_step(passes);
}

// If two units on this rank use one parameter, sums the gradients of each unit separately over
// micro-batches, as two pipeline stages do, so that the bits do not depend on the pipeline.
void DataParallel::keep_shared_uses_separate(const std::vector<int64_t>& passes) {
  // Only deterministic mode needs the order of summation of two pipeline stages.
  const bool deterministic = settings().get_bool("TUTTI_DETERMINISTIC");
  const std::deque<SharedUse>& uses = model_.parameters().shared_uses();
  for (size_t use = 0; use < uses.size(); ++use) {
    const ParameterSpec& spec =
        model_.parameters().specs()[static_cast<size_t>(uses[use].parameter)];
    const int64_t here = passes[static_cast<size_t>(uses[use].unit)];
    const int64_t first = passes[static_cast<size_t>(spec.unit)];
    storage_.keep_separate(use, deterministic && here > 0 && first > 0);
  }
}

void DataParallel::before_backward(int unit) {
  if (!this->unit(unit).backward_needs_nothing()) need_values(unit);
  if (options_.overlap && unit > 0 && !this->unit(unit - 1).backward_needs_nothing()) {
    prefetch(unit - 1);
  }
  read_ahead(options_.overlap ? unit - 2 : unit - 1);
  acquire_gradients(unit);
}

void DataParallel::acquire_gradients(int unit) {
  if (storage_.whole_gradients()) return;
  for (const int bucket : buckets_of(unit)) {
    // Wait for the bucket's reduction of an earlier round.
    while (std::ranges::count(in_flight_, bucket) > 0) finish_first(true);
    if (storage_.gradients(bucket).data != nullptr) continue;
    while (std::ssize(in_flight_) >= kGradientBucketsInFlight) finish_first(true);
    storage_.acquire_gradients(bucket);
  }
}

// Acquires the gradients of a bucket, unless a backward has acquired them.
void DataParallel::hold_gradients(int bucket) {
  if (storage_.gradients(bucket).data == nullptr) storage_.acquire_gradients(bucket);
}

void DataParallel::after_backward(int unit) { let_go(unit, unit - 1); }

void DataParallel::after_weights(int unit) {
  storage_.end_micro_batch(unit);
  for (const int parameter : model_.parameters().used_by(unit)) contribute(parameter);
  launch_ready();
  poll();
}

void DataParallel::begin_join(int parameter) {
  const Tensor own = model_.parameters().at(parameter).gradient;
  if (options_.sums_uses_separately) sum_separately(parameter, {&own, 1});
}

void DataParallel::join(int parameter) {
  if (options_.sums_uses_separately) keep_on_first(parameter);
  contribute(parameter);
  launch_ready();
  poll();
}

void DataParallel::contribute(int parameter) {
  if (!progress_.contribute(parameter)) return;
  std::vector<Tensor> uses = model_.parameters().separate_gradients(parameter);
  const bool sums = options_.sums_uses_separately && !uses.empty();
  if (sums) {
    uses.push_back(model_.parameters().at(parameter).gradient);
    sum_separately(parameter, uses);
  }
  storage_.add_separate_gradients(parameter);
  if (sums) keep_on_first(parameter);
}

void DataParallel::sum_separately(int parameter, std::span<const Tensor> uses) {
  const int bucket = storage_.layout().slots[static_cast<size_t>(parameter)].bucket;
  const Clock::time_point start = Clock::now();
  for (const Tensor& use : uses) {
    storage_.ranks_of(bucket).all_reduce(as_const(as_buffer(use)), as_buffer(use));
    count_bytes(bucket, static_cast<int64_t>(use.bytes()), 2);
  }
  waited_ += Clock::now() - start;
}

// Zeroes a gradient on all ranks but the first, so that the bucket's all-reduce adds only zeros to
// the first rank's complete sum.
void DataParallel::keep_on_first(int parameter) {
  const int bucket = storage_.layout().slots[static_cast<size_t>(parameter)].bucket;
  if (storage_.ranks_of(bucket).rank() > 0) zero(model_.parameters().at(parameter).gradient);
}

void DataParallel::launch_ready() {
  while (const std::optional<int> bucket = progress_.next()) launch(*bucket);
}

void DataParallel::launch(int bucket) {
  BucketState& at = state(bucket);
  hold_gradients(bucket);
  const Tensor gradients = storage_.gradients(bucket);
  at.reduction_started = Clock::now();
  const CallOptions call{.deterministic = progress_.joined(bucket)};
  Communicator ranks = storage_.ranks_of(bucket);
  if (hook_ != nullptr) {
    hook_->proceed();
    waited_ += Clock::now() - at.reduction_started;
  }
  if (is_hooked(bucket)) {
    hook_->start(ranks, bucket, gradients);
  } else if (storage_.options().stage == 0) {
    at.reduction = ranks.all_reduce_async(as_const(as_buffer(gradients)), as_buffer(gradients),
                                          ReduceOp::sum, call);
    count_bytes(bucket, static_cast<int64_t>(gradients.bytes()), 2);
  } else {
    if (storage_.adds_to_shards()) {
      storage_.fetch_own_gradients(bucket);
    } else {
      storage_.await_own_gradients(bucket);
    }
    const Tensor sum = storage_.adds_to_shards() ? storage_.own_part_of_gradients(bucket)
                                                 : storage_.own_gradients(bucket);
    at.reduction = ranks.reduce_scatter_async(as_const(as_buffer(gradients)), as_buffer(sum),
                                              ReduceOp::sum, call);
    count_bytes(bucket, static_cast<int64_t>(gradients.bytes()), 1);
  }
  in_flight_.push_back(bucket);
  if (!options_.overlap) finish_all();
}

// Finishes the reduction in flight that started first. Returns false if the reduction is not
// complete and `blocking` is false.
bool DataParallel::finish_first(bool blocking) {
  const int bucket = in_flight_.front();
  BucketState& at = state(bucket);
  if (!blocking && !(is_hooked(bucket) ? hook_->test(bucket) : at.reduction.test())) return false;
  if (is_hooked(bucket)) {
    const Clock::time_point start = Clock::now();
    const std::chrono::nanoseconds computed = hook_->computed();
    const Tensor gradients = storage_.gradients(bucket);
    hook_->finish(bucket, gradients);
    waited_ += Clock::now() - start - (hook_->computed() - computed);
    count_bytes(bucket, hook_->payload_bytes(bucket, gradients), 2);
  } else {
    wait(at.reduction);
  }
  in_flight_.pop_front();
  if (storage_.adds_to_shards()) {
    storage_.await_own_gradients(bucket);
    storage_.add_to_shard(bucket);
  }
  storage_.evict_own_gradients(bucket);
  report(storage_.options().stage == 0 ? "all_reduce" : "reduce_scatter", bucket,
         at.reduction_started);
  if (!storage_.whole_gradients()) storage_.release_gradients(bucket);
  return true;
}

// Finishes complete reductions. Reductions are finished in the order of their start, so the loop
// ends at the first incomplete one.
void DataParallel::poll() {
  while (!in_flight_.empty() && finish_first(false)) {
  }
}

void DataParallel::finish_all() {
  while (!in_flight_.empty()) finish_first(true);
}

void DataParallel::finish_gradients() {
  if (!progress_.complete()) {
    if (!options_.allow_unused) {
      Communicator ranks = storage_.groups().ranks.front();
      throw_on_all(ranks,
                   Error(ErrorCode::invalid_argument,
                         cat("backward did not reach the parameters ", unused_parameters()),
                         {.where = ranks.describe(ranks.rank()),
                          .cause = "the model's loss does not depend on them in this step",
                          .remedy = "remove them from the model, or allow unused parameters"}));
    }
    for (const int parameter : progress_.missing()) {
      hold_gradients(storage_.layout().slots[static_cast<size_t>(parameter)].bucket);
      storage_.add_separate_gradients(parameter);
    }
    progress_.give_up_waiting();
    launch_ready();
  }
  finish_all();
}

std::string DataParallel::unused_parameters() const {
  std::string names;
  for (const int parameter : progress_.missing()) {
    if (!names.empty()) names += ", ";
    names += model_.parameters().specs()[static_cast<size_t>(parameter)].name;
  }
  return names;
}

void DataParallel::visit_state(StateVisitor& visitor) {
  if (hook_ == nullptr) return;
  Communicator ranks = storage_.groups().ranks.front();
  const std::vector<HookState> states = hook_->states(ranks, storage_.gradient_type());
  if (!states.empty() && !visitor.has(states.front().name)) {
    if (ranks.rank() != 0) return;
    return log(
        LogLevel::warning,
        "the checkpoint was saved without this compression, which restarts without stored errors");
  }
  for (const HookState& state : states) visitor.row(state.name, state.values, state.kind);
}

// Accounting.

void DataParallel::wait(Work& work) {
  if (work.test()) return;
  const Clock::time_point start = Clock::now();
  work.wait();
  waited_ += Clock::now() - start;
}

void DataParallel::count_bytes(int bucket, int64_t bytes, int times) {
  const double ranks = storage_.ranks_of(bucket).size();
  bytes_sent_ += times * static_cast<double>(bytes) * (ranks - 1) / ranks;
}

void DataParallel::report(const char* what, int bucket, Time from) {
  if (observer_) observer_(what, bucket, from, Clock::now());
}

}  // namespace tutti::training
