#include "training/parallel/averaging/federated.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "training/kernels/elementwise.h"
#include "training/optimizers/optimizer_loops.h"
#include "training/parallel/averaging/peers.h"
#include "training/parallel/averaging/secure_sum.h"

namespace tutti::training {

namespace {

constexpr float kTau = 1e-3f;

Tensor row_of(std::span<float> values) {
  return tensor_at(values.data(), DType::f32, 1, std::ssize(values));
}

void add_in_its_type(std::span<float> values, Tensor gradient) {
  std::vector<std::byte> bytes(static_cast<size_t>(gradient.bytes()));
  const Tensor converted = tensor_at(bytes.data(), gradient.dtype, 1, gradient.cols);
  convert(row_of(values), converted);
  add(gradient, converted, gradient);
}

}  // namespace

Federated::Federated(ParameterStorage& storage, const SyncOptions& options, uint64_t seed)
    : Centred(storage, options), seed_(seed), row_(allocate_row()) {
  if (options.secure_sums) words_ = ranks().allocate<uint64_t>(static_cast<size_t>(count()));
  if (options.kind != SyncKind::fedadam) return;
  first_moment_ = allocate_row();
  second_moment_ = allocate_row();
  std::ranges::fill(span_of(second_moment_), kTau * kTau);
}

bool Federated::weights_values(int64_t targets) {
  step_targets_ = targets;
  return true;
}

void Federated::finish_gradients() {
  if (options().proximity == 0) return;
  const auto weight = static_cast<float>(options().proximity);
  const float* global = centre().data();
  std::vector<float> term;
  for (const OwnedPiece& piece : storage().owned()) {
    term.assign(piece.master.begin(), piece.master.end());
    for (float& value : term) value = weight * (value - *global++);
    const Tensor bucket = storage().gradients(piece.piece.bucket);
    add_in_its_type(term, bucket.col_range(piece.piece.bucket_offset, piece.piece.count));
  }
}

void Federated::exchange(int64_t update) {
  round_targets_ += step_targets_;
  if (update % options().every == 0) end_round(update / options().every);
}

// If the sum fails, throws before anything changes.
void Federated::end_round(int64_t round) {
  const auto from = std::chrono::steady_clock::now();
  const int clients = ranks().size();
  const auto wanted = static_cast<int>(std::lround(options().fraction * clients));
  const std::vector<bool> drawn = random_members(clients, std::max(1, wanted), seed_, round);
  const int64_t own = drawn[static_cast<size_t>(ranks().rank())] ? round_targets_ : 0;
  const int64_t all = sum_of_targets(own, drawn, round);
  if (all > 0) {
    const std::span<float> row = span_of(row_);
    values().read(0, row);
    const auto weight = static_cast<float>(static_cast<double>(own) / static_cast<double>(all));
    const bool of_differences = options().kind == SyncKind::fedadam;
    std::ranges::transform(row, centre(), row.begin(), [=](float value, float global) {
      return weight * (of_differences ? value - global : value);
    });
    sum(row, drawn, round);
    take_mean(row);
  }
  values().write(0, centre());
  round_targets_ = 0;
  observe_span("end of a round", 0, from);
}

int64_t Federated::sum_of_targets(int64_t own, const std::vector<bool>& drawn, int64_t round) {
  auto sum = static_cast<uint64_t>(own);
  if (options().secure_sums && drawn[static_cast<size_t>(ranks().rank())]) {
    add_masks({&sum, 1}, ranks().rank(), drawn, seed_, round, static_cast<uint64_t>(count()));
  }
  all_reduce({&sum, 1, DType::u64}, ReduceOp::sum);
  return static_cast<int64_t>(sum);
}

void Federated::sum(std::span<float> row, const std::vector<bool>& drawn, int64_t round) {
  if (!options().secure_sums) {
    return all_reduce({row.data(), row.size(), DType::f32}, ReduceOp::sum);
  }
  const std::span<uint64_t> words{words_.get(), row.size()};
  to_fixed_point(row, ranks().size(), words);
  if (drawn[static_cast<size_t>(ranks().rank())]) {
    add_masks(words, ranks().rank(), drawn, seed_, round, 0);
  }
  all_reduce({words.data(), words.size(), DType::u64}, ReduceOp::sum);
  from_fixed_point(words, row);
}

void Federated::take_mean(std::span<const float> mean) {
  if (options().kind != SyncKind::fedadam) {
    std::ranges::copy(mean, centre().begin());
    return;
  }
  constexpr float kBeta1 = 0.9f;
  constexpr float kBeta2 = 0.99f;
  optimizer_loops::loops().adamw(centre().data(), mean.data(), first_moment_.get(),
                                 second_moment_.get(), count(),
                                 {.gradient = -1,
                                  .one_minus_beta1 = 1 - kBeta1,
                                  .beta2 = kBeta2,
                                  .one_minus_beta2 = 1 - kBeta2,
                                  .epsilon = kTau},
                                 1, static_cast<float>(options().outer_rate));
}

void Federated::visit_state(StateVisitor& visitor) {
  Centred::visit_state(visitor);
  if (!visitor.saves()) round_targets_ = 0;
  if (!takes_own_values()) return;
  visit_targets(visitor);
  if (options().kind != SyncKind::fedadam) return;
  visit_row(visitor, "sync.first_moment", span_of(first_moment_));
  visit_row(visitor, "sync.second_moment", span_of(second_moment_));
}

// Saves round_targets_ as two numbers of 24 bits, which f32 represents exactly.
void Federated::visit_targets(StateVisitor& visitor) {
  constexpr int64_t kBase = int64_t{1} << 24;
  const int64_t high = round_targets_ / kBase;
  saved_targets_ = {static_cast<float>(high), static_cast<float>(round_targets_ - high * kBase)};
  visitor.row("sync.targets", row_of(saved_targets_), RowKind::averaged);
  round_targets_ = std::llround(static_cast<double>(saved_targets_[0]) * kBase + saved_targets_[1]);
}

}  // namespace tutti::training
