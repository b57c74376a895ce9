#include "tests/training/optimizers/owners.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "base/reduce.h"
#include "training/core/random.h"

namespace tutti::training {

class ThreadReducers::Reducer : public NormReducer {
 public:
  Reducer(ThreadReducers& all, int owner) : all_(all), owner_(static_cast<size_t>(owner)) {}
  void sum(std::span<int64_t> limbs) override {
    all_.inputs_[owner_] = limbs;
    all_.barrier_.arrive_and_wait();
    std::vector<int64_t> sums(limbs.size());
    for (const std::span<int64_t> input : all_.inputs_) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += input[i];
    }
    all_.barrier_.arrive_and_wait();
    std::copy(sums.begin(), sums.end(), limbs.begin());
  }

 private:
  ThreadReducers& all_;
  size_t owner_;
};

ThreadReducers::ThreadReducers(int owners)
    : barrier_(owners), inputs_(static_cast<size_t>(owners)) {
  for (int owner = 0; owner < owners; ++owner) {
    reducers_.push_back(std::make_unique<Reducer>(*this, owner));
  }
}

void run_owners(int owners, const std::function<void(int owner, NormReducer&)>& body) {
  ThreadReducers reducers(owners);
  std::vector<std::jthread> threads;
  for (int owner = 0; owner < owners; ++owner) {
    threads.emplace_back([&, owner] { body(owner, reducers.of(owner)); });
  }
}

namespace {

// The memory of one owner.
class Owner {
 public:
  Owner(const Training& training, const Layout& layout, int owner)
      : training_(training),
        pieces_(layout.pieces({owner})),
        optimizer_(training.make_optimizer()),
        size_(static_cast<size_t>(layout.owned_size)),
        masters_(size_),
        gradients_(size_ * size_of(training.gradients)),
        values_(size_ * size_of(training.values)),
        places_(places()),
        states_(optimizer_->state_names().size(), std::vector<float>(state_size())) {
    for (const Piece& piece : pieces_) {
      std::vector<float> start(static_cast<size_t>(piece.count));
      for (size_t i = 0; i < start.size(); ++i) {
        start[i] = example_value(spec(piece), piece.first + static_cast<int64_t>(i));
      }
      std::copy(start.begin(), start.end(), masters_.begin() + piece.owned_offset);
      write(start, row(values_, training.values, piece));
    }
  }

  void step(int64_t step, NormReducer& reducer) {
    std::vector<OwnedPiece> owned = places_;
    for (size_t at = 0; at < pieces_.size(); ++at) {
      const Piece& piece = pieces_[at];
      std::vector<float> gradients(static_cast<size_t>(piece.count));
      for (size_t i = 0; i < gradients.size(); ++i) {
        gradients[i] = example_gradient(spec(piece), piece.first + static_cast<int64_t>(i), step);
      }
      const Tensor gradient = row(gradients_, training_.gradients, piece);
      write(gradients, gradient);
      owned[at].gradient = gradient;
      if (training_.masters) owned[at].master = master(piece);
      if (has_values()) owned[at].value = row(values_, training_.values, piece);
    }
    const std::vector<std::span<float>> states(states_.begin(), states_.end());
    optimizer_->step(owned, states,
                     {.step = step,
                      .learning_rate = 0.01,
                      .gradient_factor = 0.3,
                      .parameters = static_cast<int>(training_.specs.size()),
                      .stochastic_rounding = training_.stochastic_rounding,
                      .seed = 5},
                     reducer);
  }

  // Copies this owner's bits into `bits`. Parameter i begins at element starts[i]; each element has
  // `words` words.
  void collect(std::span<const int64_t> starts, size_t words, std::vector<uint32_t>& bits) const {
    for (const OwnedPiece& owned : places_) {
      const Piece& piece = owned.piece;
      const int64_t start = starts[static_cast<size_t>(piece.parameter)] + piece.first;
      for (int64_t i = 0; i < piece.count; ++i) {
        const size_t from = static_cast<size_t>(piece.owned_offset + i);
        uint32_t* to = &bits[static_cast<size_t>(start + i) * words];
        if (training_.masters) *to = std::bit_cast<uint32_t>(masters_[from]);
        if (has_values()) std::memcpy(++to, &values_[from * value_size()], value_size());
        for (const auto& state : states_) *++to = state_bits(owned, state, i);
      }
    }
  }
  size_t words() const { return 2 + states_.size(); }

 private:
  std::vector<OwnedPiece> places() const {
    std::vector<OwnedPiece> owned;
    for (const Piece& piece : pieces_) owned.push_back({.piece = piece, .spec = &spec(piece)});
    optimizer_->place_states(owned);
    return owned;
  }
  size_t state_size() { return static_cast<size_t>(optimizer_->place_states(places_)); }
  // Returns the state of an element: a float's bits or, in 8-bit formats, a combination of its code
  // and its block's scale.
  uint32_t state_bits(const OwnedPiece& owned, const std::vector<float>& state, int64_t i) const {
    const float* const memory = state.data() + owned.first_state();
    if (optimizer_->state_format(*owned.spec) == StateFormat::f32) {
      return std::bit_cast<uint32_t>(memory[i]);
    }
    const BlockwiseState view(const_cast<float*>(memory), owned.piece.count);
    return std::bit_cast<uint32_t>(view.scales[i / kStateBlock]) + view.codes[i];
  }
  const ParameterSpec& spec(const Piece& piece) const {
    return training_.specs[static_cast<size_t>(piece.parameter)];
  }
  bool has_values() const { return !training_.masters || training_.values != DType::f32; }
  size_t value_size() const { return size_of(training_.values); }
  std::span<float> master(const Piece& piece) {
    return std::span(masters_).subspan(static_cast<size_t>(piece.owned_offset),
                                       static_cast<size_t>(piece.count));
  }
  static Tensor row(std::vector<std::byte>& bytes, DType type, const Piece& piece) {
    std::byte* const start = bytes.data() + static_cast<size_t>(piece.owned_offset) * size_of(type);
    return tensor_at(start, type, 1, piece.count);
  }
  static void write(const std::vector<float>& floats, Tensor row) {
    if (row.dtype == DType::f32) {
      std::copy(floats.begin(), floats.end(), row.values<float>().begin());
    } else {
      narrow(row.data, floats.data(), floats.size(), row.dtype);
    }
  }

  const Training& training_;
  std::vector<Piece> pieces_;
  std::unique_ptr<Optimizer> optimizer_;
  size_t size_;
  std::vector<float> masters_;
  std::vector<std::byte> gradients_;
  std::vector<std::byte> values_;
  std::vector<OwnedPiece> places_;
  std::vector<std::vector<float>> states_;
};

}  // namespace

std::vector<uint32_t> train(const Training& training, const LayoutOptions& options) {
  LayoutOptions aligned = options;
  aligned.alignment = training.make_optimizer()->alignment();
  const Layout layout = make_layout(training.specs, aligned);
  std::vector<int64_t> starts;
  int64_t count = 0;
  for (const ParameterSpec& spec : training.specs) {
    starts.push_back(count);
    count += spec.count();
  }
  const size_t words = Owner(training, layout, 0).words();
  std::vector<uint32_t> bits(static_cast<size_t>(count) * words);
  run_owners(options.ranks.front(), [&](int index, NormReducer& reducer) {
    Owner owner(training, layout, index);
    for (int64_t step = 1; step <= training.steps; ++step) owner.step(step, reducer);
    owner.collect(starts, words, bits);
  });
  return bits;
}

namespace {

float example(uint64_t stream, uint64_t seed, int64_t element) {
  const uint64_t bits = random_bits(seed, stream, static_cast<uint64_t>(element));
  return scale_symmetric(bits, static_cast<float>(1 << (bits % 8)) / 64);
}

}  // namespace

float example_value(const ParameterSpec& spec, int64_t element) {
  return example(spec.stream(), 0, element);
}

float example_gradient(const ParameterSpec& spec, int64_t element, int64_t step) {
  return example(spec.stream(), static_cast<uint64_t>(step), element);
}

std::vector<ParameterSpec> example_specs() {
  return {
      {.name = "embedding", .shape = {67, 33}}, {.name = "gain", .shape = {77}, .decays = false},
      {.name = "weight", .shape = {40, 128}},   {.name = "scalar", .shape = {1}, .decays = false},
      {.name = "nothing", .shape = {0, 3}},     {.name = "bias", .shape = {31}, .decays = false},
      {.name = "head", .shape = {5, 7}}};
}

}  // namespace tutti::training
