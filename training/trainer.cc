#include "training/trainer.h"

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "training/data_parallel.h"
#include "training/optimizer.h"
#include "training/random.h"

namespace tutti::training {
namespace {

// AdamW's second moment forgets within some hundred steps, so that short runs profit from it.
constexpr float kBeta2 = 0.99f;
// The learning rate ends at this fraction of its peak.
constexpr float kFinalFraction = 0.1f;

bool is_adamw(const TrainOptions& options) { return options.optimizer == OptimizerKind::adamw; }

float peak_learning_rate(const TrainOptions& options) {
  return options.learning_rate.value_or(is_adamw(options) ? 0.006f : 0.3f);
}

float weight_decay(const TrainOptions& options) {
  return options.weight_decay.value_or(is_adamw(options) ? 0.01f : 0.0f);
}

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options) {
  if (!is_adamw(options)) {
    return std::make_unique<Sgd>(SgdOptions{.weight_decay = weight_decay(options)});
  }
  return std::make_unique<AdamW>(
      AdamWOptions{.beta2 = kBeta2, .weight_decay = weight_decay(options)});
}

// Equal on all ranks if they are about to train the same model on the same text.
uint64_t fingerprint(const TextData& text, const TrainOptions& options) {
  const ByteModelConfig& model = options.model;
  const std::string settings = cat(
      model.context, ' ', model.embedding, ' ', model.hidden, ' ', model.layers, ' ', options.steps,
      ' ', options.batch, ' ', options.seed, ' ', static_cast<int>(options.optimizer), ' ',
      peak_learning_rate(options), ' ', options.warmup_steps, ' ', weight_decay(options));
  uint64_t hash = text.fingerprint();
  for (const char character : settings) hash = mix_bits(hash + static_cast<uint8_t>(character));
  return hash;
}

void check_same_everywhere(Communicator& communicator, uint64_t fingerprint) {
  // The maximum of the complements is the complement of the minimum.
  std::array<uint64_t, 2> bounds = {fingerprint, ~fingerprint};
  communicator.all_reduce(std::span<uint64_t>(bounds), ReduceOp::max);
  if (bounds[0] == ~bounds[1]) return;
  throw Error(ErrorCode::mismatch, "the ranks do not train the same model",
              {.where = communicator.describe(communicator.rank()),
               .cause = "their texts or training options differ",
               .remedy = "give every rank the same files and the same options"});
}

void check_finite(double loss, int64_t step, const TrainOptions& options) {
  if (std::isfinite(loss)) return;
  throw Error(
      ErrorCode::invalid_argument, cat("the loss is not finite at step ", step),
      {.cause = cat("the training diverged at a learning rate of ", peak_learning_rate(options)),
       .remedy = "try a smaller learning rate"});
}

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

// Each rank takes an even part of the held-out positions.
void validate(DataParallel& parallel, ByteModel& model, const TextData& text, TrainResult& result) {
  const std::vector<size_t> positions = validation_positions(text);
  const Range part = even_part(std::ssize(positions), parallel.communicator().rank(),
                               parallel.communicator().size());
  const auto own = std::span(positions).subspan(static_cast<size_t>(part.begin),
                                                static_cast<size_t>(part.size()));
  result.validation_samples = std::ssize(positions);
  result.validation_loss =
      parallel.sum(sum_losses(model, text, own)) / static_cast<double>(positions.size());
}

}  // namespace

void TrainOptions::check() const {
  const ByteModel checked(model);
  const auto require = [](bool good, std::string_view what, const auto& value) {
    if (!good) {
      throw Error(ErrorCode::invalid_argument, cat("the ", what, " cannot be ", value));
    }
  };
  require(steps >= 1, "number of steps", steps);
  require(batch >= 1, "global batch", batch);
  require(warmup_steps >= 0, "number of warm-up steps", warmup_steps);
  require(weight_decay.value_or(0.0f) >= 0, "weight decay", weight_decay.value_or(0.0f));
  require(peak_learning_rate(*this) > 0, "learning rate", peak_learning_rate(*this));
}

TrainResult train(Communicator communicator, const TextData& text, const TrainOptions& options,
                  const std::function<void(const StepReport&)>& on_step) {
  options.check();
  check_same_everywhere(communicator, fingerprint(text, options));
  ByteModel model(options.model);
  const ParameterLayout layout = model.layout();
  Parameters parameters(layout, communicator.allocate<float>(layout.size),
                        communicator.allocate<float>(layout.size));
  model.bind(parameters);
  model.initialize(options.seed);
  DataParallel parallel(communicator, parameters);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(options);
  const LearningRateSchedule schedule{.peak = peak_learning_rate(options),
                                      .warmup_steps = options.warmup_steps,
                                      .total_steps = options.steps,
                                      .final_fraction = kFinalFraction};
  const Range share = parallel.share(options.batch);

  const Clock::time_point start = Clock::now();
  const auto before = parallel.communication_time();
  for (int64_t step = 0; step < options.steps; ++step) {
    parameters.zero_gradients();
    const double own_loss = accumulate_gradients(model, text, options.seed,
                                                 static_cast<uint64_t>(step), options.batch, share);
    parallel.reduce_gradients();
    const double loss = parallel.sum(own_loss) / static_cast<double>(options.batch);
    check_finite(loss, step + 1, options);
    optimizer->step(parameters, schedule.at(step));
    on_step({step + 1, loss, Clock::now() - start});
  }

  TrainResult result;
  const double elapsed = seconds(Clock::now() - start);
  result.samples_per_second =
      static_cast<double>(options.steps) * static_cast<double>(options.batch) / elapsed;
  result.communication_share = seconds(parallel.communication_time() - before) / elapsed;
  validate(parallel, model, text, result);
  return result;
}

}  // namespace tutti::training
