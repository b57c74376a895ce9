// The states of whole parameters, for optimizers that compute with whole matrices
// (whole_matrices.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/core/parameters.h"

namespace tutti::training {

// A state that one owner keeps for a whole parameter. Its shape may differ from the parameter's.
struct WholeState {
  std::string name;  // such as "exp_avg_sq_row"
  std::vector<int64_t> shape;

  int64_t count() const;
};

// The places of the states of the parameters that this owner computes, in one flat array.
class WholeStates {
 public:
  struct Place {
    int parameter = 0;
    WholeState state;
    int64_t first = 0;
  };
  using StatesOf = std::function<std::vector<WholeState>(const ParameterSpec& spec)>;

  WholeStates() = default;
  // Computes the places. `parameters`: indices in `specs` of the parameters whose updates this
  // owner computes (computed_here()).
  WholeStates(const std::vector<ParameterSpec>& specs, std::span<const int> parameters,
              const StatesOf& states_of);

  int64_t floats() const { return floats_; }
  // Returns the number of floats of the two largest parameters' states.
  int64_t floats_of_two() const;
  const std::vector<Place>& places() const { return places_; }
  // Sets the memory of all states, an array of floats() floats that must outlive this object.
  void set_memory(float* memory) { memory_ = memory; }
  std::span<float> at(const Place& place) const;
  // Returns all states of a parameter, which are adjacent; empty if it has none on this owner.
  std::span<float> all_of(int parameter) const;
  // Sets a function that is called before a parameter's states are used.
  void set_observer(std::function<void(int parameter)> observer) {
    observer_ = std::move(observer);
  }
  // Returns the states of a parameter, in order. Throws Error(internal) for a parameter without
  // states on this owner.
  std::vector<std::span<float>> of(int parameter) const;

 private:
  std::vector<Place> places_;  // grouped by parameter
  int64_t floats_ = 0;
  float* memory_ = nullptr;
  std::function<void(int)> observer_;
};

}  // namespace tutti::training
