#include "training/replica.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/optimizers/gradient_norm.h"
#include "training/parallel/throw_on_all.h"

namespace tutti::training {
namespace {

// Norms are summed over those that own parts of the parameters: all ranks, or, where each has
// everything, none but this one.
class RankReducer : public NormReducer {
 public:
  RankReducer(Communicator& communicator, bool sharded)
      : communicator_(communicator), sharded_(sharded) {}
  void sum(std::span<int64_t> limbs) override {
    if (sharded_) communicator_.all_reduce(limbs);
  }

 private:
  Communicator& communicator_;
  bool sharded_;
};

RunnerOptions with_type(RunnerOptions options, DType dtype) {
  options.dtype = dtype;
  return options;
}

}  // namespace

Replica::Replica(Communicator communicator, Model& model, std::unique_ptr<Optimizer> optimizer,
                 const ReplicaOptions& options, const HookFactory& hook)
    : communicator_(std::move(communicator)),
      model_(model),
      options_(options),
      optimizer_(std::move(optimizer)),
      state_names_(optimizer_->state_names()),
      storage_(communicator_, model.parameters(), options.storage),
      data_parallel_(communicator_, model, storage_, options.data_parallel,
                     hook ? hook(storage_.layout()) : nullptr),
      runner_(model, with_type(options.runner, options.storage.dtype)) {
  const auto owned = static_cast<size_t>(storage_.layout().owned_size());
  for (size_t i = 0; i < state_names_.size(); ++i) {
    states_.push_back(communicator_.allocate<float>(owned));
  }
  if (options.loss_scaling) scaler_.emplace(*options.loss_scaling);
  storage_.fill_owned([&](const OwnedPiece& piece, std::span<float> values) {
    initial_values(*piece.spec, options_.seed, piece.piece.first, values);
  });
  data_parallel_.publish_values();
}

StepResult Replica::step(const StepBatches& batches, int64_t step, double learning_rate) {
  StepResult result;
  result.loss_scale = scaler_ ? scaler_->scale() : 1;
  Trouble trouble;
  std::array<double, 3> sums{};  // loss, correct, ranks in trouble
  data_parallel_.begin_step(batches.passes);
  for (int64_t pass = 0; pass < batches.passes; ++pass) {
    data_parallel_.begin_pass();
    if (pass >= std::ssize(batches.own)) {
      runner_.shadow_train(hooks());
      continue;
    }
    const PassResult done =
        runner_.train(batches.own[static_cast<size_t>(pass)],
                      result.loss_scale / static_cast<double>(batches.targets), hooks());
    sums[0] += done.loss_sum;
    sums[1] += static_cast<double>(done.correct);
    if (done.broken_unit && trouble.kind == Trouble::none) {
      trouble = {Trouble::loss, *done.broken_unit};
    }
  }
  data_parallel_.finish_gradients();
  if (trouble.kind == Trouble::none && data_parallel_.broken_gradient()) {
    trouble = {Trouble::gradient, data_parallel_.broken_gradient()->parameter};
  }
  sums[2] = trouble.kind == Trouble::none ? 0 : 1;
  communicator_.all_reduce(std::span<double>(sums));
  result.loss = sums[0] / static_cast<double>(batches.targets);
  result.correct = sums[1] / static_cast<double>(batches.targets);

  if (sums[2] > 0) result.overflow = describe(gather(trouble));
  const bool overflow = sums[2] > 0 || !update(result, step, learning_rate);
  if (scaler_ && !(overflow && scaler_->exhausted())) {
    result.skipped = scaler_->update(overflow);
  } else if (overflow) {
    throw_on_all(
        communicator_,
        Error(ErrorCode::invalid_argument,
              cat("step ", step, ": ",
                  result.overflow.empty() ? "the gradients' sum over ranks" : result.overflow,
                  " is not finite"),
              {.cause = cat("the training diverged, at a learning rate of ", learning_rate),
               .remedy = "try a smaller learning rate, --clip or a longer warm-up"}));
  }
  return result;
}

// False if the gradients' norm is not finite; nothing is updated then.
bool Replica::update(StepResult& result, int64_t step, double learning_rate) {
  const TraceSpan span(trace_, "optimizer", TraceCategory::optimizer);
  RankReducer reducer(communicator_, options_.storage.stage > 0);
  const double norm = gradient_norm(storage_.owned(), reducer) / result.loss_scale;
  result.gradient_norm = norm;
  if (!std::isfinite(norm)) return false;
  const double clipped = options_.clip ? clip_factor(norm, *options_.clip) : 1;
  const std::vector<std::span<float>> states = this->states();
  optimizer_->step(storage_.owned(), states,
                   {.step = step,
                    .learning_rate = learning_rate,
                    .gradient_factor = clipped / result.loss_scale,
                    .parameters = model_.parameters().size(),
                    .stochastic_rounding = options_.stochastic_rounding,
                    .seed = options_.seed},
                   reducer);
  data_parallel_.publish_values();
  return true;
}

std::vector<Replica::Trouble> Replica::gather(const Trouble& own) {
  std::vector<Trouble> all(static_cast<size_t>(communicator_.size()));
  communicator_.all_gather({&own, sizeof(own) / sizeof(int32_t), DType::i32},
                           {all.data(), all.size() * sizeof(own) / sizeof(int32_t), DType::i32});
  return all;
}

std::string Replica::describe(const std::vector<Trouble>& troubles) const {
  for (size_t rank = 0; rank < troubles.size(); ++rank) {
    const auto index = static_cast<size_t>(troubles[rank].index);
    const std::string where = communicator_.describe(static_cast<int>(rank));
    if (troubles[rank].kind == Trouble::loss) {
      return cat("the output of ", model_.units()[index]->name(), " on ", where);
    }
    if (troubles[rank].kind == Trouble::gradient) {
      return cat("the gradient of ", model_.parameters().specs()[index].name, " on ", where,
                 ", before any reduction,");
    }
  }
  return {};
}

Evaluation Replica::evaluate(std::span<const MicroBatch> own, int64_t passes) {
  share_buffers();
  std::array<double, 3> sums{};
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (pass >= std::ssize(own)) {
      runner_.shadow_evaluate(hooks());
      continue;
    }
    const MicroBatch& batch = own[static_cast<size_t>(pass)];
    const PassResult done = runner_.evaluate(batch, hooks());
    sums[0] += done.loss_sum;
    sums[1] += static_cast<double>(done.correct);
    sums[2] += static_cast<double>(batch.targets.size());
  }
  communicator_.all_reduce(std::span<double>(sums));
  return {sums[0] / sums[2], sums[1] / sums[2], static_cast<int64_t>(sums[2])};
}

std::vector<std::span<float>> Replica::states() const {
  std::vector<std::span<float>> states;
  for (const Memory<float>& state : states_) {
    states.emplace_back(state.get(), static_cast<size_t>(storage_.layout().owned_size()));
  }
  return states;
}

std::vector<std::string> Replica::kinds() const {
  std::vector<std::string> kinds = {"model"};
  for (const std::string& name : state_names_) kinds.push_back("optimizer." + name);
  return kinds;
}

std::span<float> Replica::values_of(const OwnedPiece& piece, size_t kind) const {
  if (kind == 0) return piece.master;
  return {states_.at(kind - 1).get() + piece.piece.owned_offset,
          static_cast<size_t>(piece.piece.count)};
}

void Replica::finish_values() { data_parallel_.finish_values(); }

void Replica::publish() {
  for (const OwnedPiece& piece : storage_.owned()) store_masters(piece);
  data_parallel_.publish_values();
}

void Replica::share_buffers() {
  for (const NamedBuffer& buffer : model_.buffers()) communicator_.broadcast(buffer.values, 0);
}

void Replica::record(Trace& trace) {
  trace_ = &trace;
  tracing_.emplace(data_parallel_, model_, trace);
  data_parallel_.observe(record_collectives(trace));
}

MemoryReport Replica::memory() const {
  MemoryReport report{.storage = storage_.bytes(),
                      .activations = static_cast<int64_t>(runner_.activation_bytes())};
  for (const OwnedPiece& piece : storage_.owned()) {
    report.optimizer += piece.piece.count * static_cast<int64_t>(states_.size() * sizeof(float));
  }
  return report;
}

}  // namespace tutti::training
