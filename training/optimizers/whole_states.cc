#include "training/optimizers/whole_states.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

int64_t WholeState::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

WholeStates::WholeStates(const std::vector<ParameterSpec>& specs, std::span<const int> parameters,
                         const StatesOf& states_of) {
  for (const int parameter : parameters) {
    for (WholeState& state : states_of(specs[static_cast<size_t>(parameter)])) {
      const int64_t count = state.count();
      places_.push_back({parameter, std::move(state), floats_});
      floats_ += count;
    }
  }
}

std::span<float> WholeStates::at(const Place& place) const {
  return {memory_ + place.first, static_cast<size_t>(place.state.count())};
}

int64_t WholeStates::floats_of_two() const {
  std::map<int, int64_t> floats;
  for (const Place& place : places_) floats[place.parameter] += place.state.count();
  int64_t most = 0;
  int64_t second = 0;
  for (const auto& [parameter, count] : floats) {
    second = std::max(second, std::min(most, count));
    most = std::max(most, count);
  }
  return most + second;
}

std::span<float> WholeStates::all_of(int parameter) const {
  int64_t first = 0;
  int64_t count = 0;
  for (const Place& place : places_) {
    if (place.parameter != parameter) continue;
    if (count == 0) first = place.first;
    count += place.state.count();
  }
  return {memory_ + first, static_cast<size_t>(count)};
}

std::vector<std::span<float>> WholeStates::of(int parameter) const {
  if (observer_) observer_(parameter);
  std::vector<std::span<float>> states;
  for (const Place& place : places_) {
    if (place.parameter == parameter) states.push_back(at(place));
  }
  if (!states.empty()) return states;
  throw Error(ErrorCode::internal, cat("parameter ", parameter, " has no states on this owner"));
}

}  // namespace tutti::training
