#include "training/engine/updater.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "training/kernels/observer.h"
#include "training/optimizers/gradient_norm.h"
#include "training/optimizers/whole_matrices.h"

namespace tutti::training {
namespace {

class NoNorms : public NormReducer {
 public:
  void sum(std::span<int64_t>) override {
    throw Error(ErrorCode::internal, "owners that update independently have no common norms");
  }
};

double bytes_of_gradients(std::span<const OwnedPiece> pieces) {
  double bytes = 0;
  for (const OwnedPiece& piece : pieces) bytes += static_cast<double>(piece.gradient.bytes());
  return bytes;
}

// Returns the bytes of an update: masters (or values without masters) and states count as read and
// written, gradients as read, and values with masters as written.
double bytes_of_update(std::span<const OwnedPiece> pieces, size_t states) {
  double bytes = bytes_of_gradients(pieces);
  for (const OwnedPiece& piece : pieces) {
    const auto values = static_cast<double>(piece.value.bytes());
    const auto floats = static_cast<double>(piece.piece.count) * sizeof(float);
    bytes += 2 * static_cast<double>(states) * floats;
    bytes += piece.master.empty() ? 2 * values : 2 * floats + values;
  }
  return bytes;
}

double observed_norm(std::span<const OwnedPiece> pieces, NormReducer& reducer) {
  KernelSpan span("gradient_norm");
  if (span.observed()) span.set_bytes(bytes_of_gradients(pieces));
  return gradient_norm(pieces, reducer);
}

}  // namespace

Updater::Updater(std::unique_ptr<Optimizer> optimizer, Model& model, ParameterStorage& storage,
                 Communicator& group, const UpdaterOptions& options)
    : optimizer_(std::move(optimizer)), model_(model), storage_(storage), options_(options) {
  std::vector<OwnedPiece> pieces = storage.owned();
  state_floats_ = optimizer_->place_states(pieces);
  for (const OwnedPiece& piece : pieces) {
    first_states_[piece.piece.owned_offset] = piece.state_offset;
  }
  for (size_t i = 0; i < optimizer_->state_names().size(); ++i) {
    states_.push_back(storage.allocate_state(state_floats_));
  }
  if (storage.options().stage > 0) {
    matrices_.emplace(group, storage.layout(), model.parameters().specs());
  }
  whole_states_ = whole_states_here(*optimizer_, model.parameters().specs(),
                                    static_cast<int>(model.units().size()), storage.owned(),
                                    matrices_ ? &*matrices_ : nullptr);
  whole_memory_ = storage.allocate_state(whole_states_.floats());
  whole_states_.set_memory(whole_memory_.get());
  if (storage.options().offload.optimizer()) offload();
  if (options.loss_scaling) scaler_.emplace(*options.loss_scaling);
}

double Updater::update(std::span<const OwnedPiece> pieces, double learning_rate,
                       NormReducer& reducer) {
  const double norm = observed_norm(pieces, reducer) / loss_scale();
  if (!std::isfinite(norm)) return norm;
  const double clipped = options_.clip ? clip_factor(norm, *options_.clip) : 1;
  step(pieces, learning_rate, clipped / loss_scale(), reducer);
  return norm;
}

void Updater::update_elements(std::span<const OwnedPiece> pieces, double learning_rate,
                              double factor) {
  NoNorms none;
  step(pieces, learning_rate, factor, none);
}

ExactSum Updater::update_unseen(double learning_rate, NormReducer& reducer) {
  ExactSum squares;
  for (const OwnedPiece& piece : storage_.owned()) {
    if (!piece.copy) add_squares(piece.gradient, squares);
  }
  step(storage_.owned(), learning_rate, 1, reducer);
  return squares;
}

void Updater::step(std::span<const OwnedPiece> pieces, double learning_rate, double gradient_factor,
                   NormReducer& reducer) {
  std::vector<std::span<float>> states;
  for (const Memory<float>& state : states_) {
    states.emplace_back(state.get(), static_cast<size_t>(state_floats_));
  }
  std::vector<OwnedPiece> placed(pieces.begin(), pieces.end());
  for (OwnedPiece& piece : placed) {
    piece.state_offset = first_states_.at(piece.piece.owned_offset);
  }
  KernelSpan span("optimizer_step");
  if (span.observed()) span.set_bytes(bytes_of_update(pieces, states.size()));
  optimizer_->step(placed, states,
                   {.step = ++updates_,
                    .learning_rate = learning_rate,
                    .gradient_factor = gradient_factor,
                    .parameters = model_.parameters().size(),
                    .units = static_cast<int>(model_.units().size()),
                    .matrices = matrices_ ? &*matrices_ : nullptr,
                    .whole = &whole_states_,
                    .stochastic_rounding = options_.stochastic_rounding,
                    .seed = options_.seed},
                   reducer);
  if (offloaded_wholes_) offloaded_wholes_->end();
  if (Pager* const pager = storage_.pager()) pager->wait(0);  // throws if an earlier write failed
}

void Updater::restart() {
  for (const Memory<float>& state : states_) {
    std::fill_n(state.get(), state_floats_, 0.0F);
  }
  std::fill_n(whole_memory_.get(), whole_states_.floats(), 0.0F);
  for (const OwnedPiece& piece : storage_.owned()) storage_.evict(piece);
  updates_ = 0;
}

void Updater::offload() {
  storage_.offloaded()->set_states([this](const PieceRange& range, std::vector<PageRange>& memory) {
    add_memory(range, memory);
  });
  if (whole_states_.floats() == 0) return;
  offloaded_wholes_.emplace(*storage_.pager(), whole_states_);
  whole_states_.set_observer([this](int parameter) { offloaded_wholes_->use(parameter); });
}

void Updater::add_memory(const PieceRange& range, std::vector<PageRange>& memory) const {
  const auto add = [&](const Tensor& row, int64_t first, int64_t count) {
    const Tensor part = row.col_range(first, count);
    memory.push_back({{part.data, part.bytes()}, true});
  };
  for (size_t state = 0; state < states_.size(); ++state) {
    add(state_of(*range.owned, state), range.first, range.count);
    const Tensor scales = scales_of(*range.owned, state);
    if (scales.empty()) continue;
    add(scales, range.first / kStateBlock, state_blocks(range.count));
  }
}

bool Updater::adapt_scale(bool overflow) {
  if (!scaler_ || (overflow && scaler_->exhausted())) return !overflow;
  scaler_->update(overflow);
  return true;
}

std::vector<std::string> Updater::kinds() const {
  std::vector<std::string> kinds = optimizer_->state_names();
  for (std::string& kind : kinds) kind.insert(0, "optimizer.");
  return kinds;
}

float* Updater::memory_of(const OwnedPiece& piece, size_t state) const {
  return states_.at(state).get() + first_states_.at(piece.piece.owned_offset);
}

Tensor Updater::state_of(const OwnedPiece& piece, size_t state) const {
  const int64_t count = piece.piece.count;
  float* const memory = memory_of(piece, state);
  if (optimizer_->state_format(*piece.spec) == StateFormat::f32) {
    return tensor_at(memory, DType::f32, 1, count);
  }
  return tensor_at(BlockwiseState(memory, count).codes, DType::u8, 1, count);
}

Tensor Updater::scales_of(const OwnedPiece& piece, size_t state) const {
  if (optimizer_->state_format(*piece.spec) == StateFormat::f32) return {};
  const int64_t count = piece.piece.count;
  float* const scales = BlockwiseState(memory_of(piece, state), count).scales;
  return tensor_at(scales, DType::f32, 1, state_blocks(count));
}

int64_t Updater::bytes() const {
  int64_t floats = 0;
  for (const OwnedPiece& piece : storage_.owned()) {
    floats += state_floats(optimizer_->state_format(*piece.spec), piece.piece.count);
  }
  floats *= std::ssize(states_);
  return (floats + whole_states_.floats()) * static_cast<int64_t>(sizeof(float));
}

void Updater::visit_state(StateVisitor& visitor) {
  const std::vector<std::string> kinds = this->kinds();
  for (size_t state = 0; state < kinds.size(); ++state) {
    visitor.pieces(kinds[state], [&](const OwnedPiece& piece) { return state_of(piece, state); });
    visitor.blocks(kinds[state] + "_absmax", kStateBlock,
                   [&](const OwnedPiece& piece) { return scales_of(piece, state); });
  }
  for (const WholeStates::Place& place : whole_states_.places()) {
    const std::span<float> values = whole_states_.at(place);
    visitor.whole("optimizer." + place.state.name, place.parameter, place.state.shape,
                  tensor_at(values.data(), DType::f32, 1, std::ssize(values)));
  }
  // A run whose checkpoint lacks the number of updates skipped no steps, so it made one update per
  // step.
  visitor.number("updates", updates_, visitor.step());
  if (!scaler_) return;
  LossScaler::State scaler = scaler_->state();
  int64_t overflows_left = scaler.overflows_left;
  visitor.number("loss_scaler.scale", scaler.scale, scaler.scale);
  visitor.number("loss_scaler.good_steps", scaler.good_steps, scaler.good_steps);
  visitor.number("loss_scaler.overflows_left", overflows_left, overflows_left);
  scaler.overflows_left = static_cast<int>(overflows_left);
  scaler_->restore(scaler);
}

}  // namespace tutti::training
