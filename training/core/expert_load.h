// Counts the tokens that each layer's experts get in a step, over all ranks and micro-batches. The
// counts are integers, so the order of summation does not matter. Routers (modules/router.h) use
// them to measure how evenly the experts are loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::training {

class ExpertLoad {
 public:
  // Collective. Sums `numbers` over all ranks that have other tokens or layers.
  using Sum = std::function<void(std::span<int64_t> numbers)>;

  // `is_needed`: true if backward reads the step's counts (a balance loss of the whole batch).
  // `bias_rate`: step size of move_bias().
  ExpertLoad(int64_t layers, int64_t experts, bool is_needed, double bias_rate = 0)
      : layers_(layers),
        experts_(experts),
        is_needed_(is_needed),
        bias_rate_(bias_rate),
        numbers_(static_cast<size_t>(layers * (experts + 1))),
        bias_(static_cast<size_t>(layers * experts)) {}

  int64_t layers() const { return layers_; }
  int64_t experts() const { return experts_; }
  bool is_needed() const { return is_needed_; }
  bool has_bias() const { return bias_rate_ != 0; }  // false: move_bias() changes nothing
  void set_sum(Sum sum) { sum_ = std::move(sum); }

  void begin_step() {
    numbers_.assign(numbers_.size(), 0);
    is_known_ = false;
  }
  // add() counts choices of a layer's expert, including dropped choices. add_dropped() counts
  // choices that were dropped because the expert was full. They have no effect after share().
  void add(int64_t layer, int64_t expert, int64_t count) {
    if (!is_known_) numbers_[place(layer, expert)] += count;
  }
  void add_dropped(int64_t layer, int64_t count) { add(layer, experts_, count); }

  // Ends counting and sums the numbers over all ranks. The first call in a step is collective;
  // later calls return at once.
  void share() {
    if (std::exchange(is_known_, true)) return;
    if (sum_) sum_(numbers_);
  }
  // Returns the number of times an expert was chosen, including dropped choices. Valid after
  // share().
  int64_t of(int64_t layer, int64_t expert) const { return numbers_[place(layer, expert)]; }
  std::vector<std::vector<int64_t>> by_layer() const {
    std::vector<std::vector<int64_t>> all(static_cast<size_t>(layers_));
    for (int64_t layer = 0; layer < layers_; ++layer) {
      for (int64_t expert = 0; expert < experts_; ++expert) {
        all[static_cast<size_t>(layer)].push_back(of(layer, expert));
      }
    }
    return all;
  }
  // Returns the bias of each expert of a layer. The bias is added to the scores only to choose
  // experts.
  std::span<float> bias(int64_t layer) {
    return std::span(bias_).subspan(static_cast<size_t>(layer * experts_),
                                    static_cast<size_t>(experts_));
  }
  // Call after a step. Raises the bias of experts that were chosen less often than the mean and
  // lowers the bias of experts that were chosen more often (Wang et al.: Auxiliary-loss-free load
  // balancing, 2024). All ranks compute the same result.
  void move_bias() {
    if (bias_rate_ == 0) return;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      int64_t all = 0;
      for (int64_t expert = 0; expert < experts_; ++expert) all += of(layer, expert);
      for (int64_t expert = 0; expert < experts_; ++expert) {
        const int64_t missing = all - experts_ * of(layer, expert);
        const int sign = missing == 0 ? 0 : (missing > 0 ? 1 : -1);
        bias(layer)[static_cast<size_t>(expert)] += static_cast<float>(bias_rate_ * sign);
      }
    }
  }
  // Returns the number of dropped choices, summed over all layers.
  int64_t dropped() const {
    int64_t sum = 0;
    for (int64_t layer = 0; layer < layers_; ++layer) sum += of(layer, experts_);
    return sum;
  }

 private:
  size_t place(int64_t layer, int64_t expert) const {
    return static_cast<size_t>(layer * (experts_ + 1) + expert);
  }

  int64_t layers_;
  int64_t experts_;
  bool is_needed_;
  double bias_rate_;
  std::vector<int64_t> numbers_;  // by layer: counts of its experts, then of dropped choices
  bool is_known_ = false;
  std::vector<float> bias_;  // by layer and expert
  Sum sum_;
};

}  // namespace tutti::training
