#include "training/planner/local/unit_profiles.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "training/core/thread_pool.h"
#include "training/models/registry.h"
#include "training/setup/random_batch.h"

namespace tutti::training::planner {

namespace {

using pipeline::Layer;
using pipeline::Profile;
using pipeline::UnitMemory;

constexpr int kRuns = 3;              // number of runs of each unit; their median counts
constexpr int64_t kMostMeasured = 4;  // largest number of samples to measure

// Returns a text that identifies all inputs of a profile. (Full recomputation is not one, because
// its time is added later.)
std::string key_of(const RunOptions& settled, const MeshPlace& place, int64_t samples) {
  return cat(samples, ' ', place.size(Axis::tensor), ' ', place.size(Axis::context), ' ',
             place.ranks_along(place.experts), ' ', name(place.experts), ' ',
             settled.recompute == "selective", ' ', settled.sequence_parallel, ' ', settled.mix);
}

// Extrapolates linearly from the costs of two and four samples, and writes the result to `four`.
void extend(double two, double& four, int64_t samples) {
  four += std::max(0.0, four - two) / 2 * static_cast<double>(samples - kMostMeasured);
}
void extend(int64_t two, int64_t& four, int64_t samples) {
  four += std::max<int64_t>(0, four - two) * (samples - kMostMeasured) / 2;
}

Profile extended(const Profile& two, const Profile& four, int64_t samples) {
  Profile all = four;
  all.samples = samples;
  const double times = static_cast<double>(samples) / kMostMeasured;
  for (size_t unit = 0; unit < all.layers.size(); ++unit) {
    Layer& layer = all.layers[unit];
    extend(two.layers[unit].forward, layer.forward, samples);
    extend(two.layers[unit].backward, layer.backward, samples);
    extend(two.layers[unit].activation_bytes, layer.activation_bytes, samples);
    for (const auto member : {&UnitMemory::kept, &UnitMemory::forward, &UnitMemory::backward}) {
      extend(two.memory[unit].*member, all.memory[unit].*member, samples);
    }
    for (auto* const messages : {&all.messages[unit].forward, &all.messages[unit].backward}) {
      for (UnsentMessage& message : *messages) message.bytes *= times;
    }
  }
  return all;
}

}  // namespace

UnitProfiles::UnitProfiles(int ranks, int processors, std::optional<int64_t> threads)
    : threads_(threads ? static_cast<int>(*threads) : std::max(1, processors / ranks)),
      at_once_(std::clamp(processors / threads_, 1, ranks)) {}

const Profile& UnitProfiles::of(const RunOptions& settled, const MeshPlace& place,
                                int64_t samples) {
  const std::string key = key_of(settled, place, samples);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  if (samples <= kMostMeasured) {
    return known_.emplace(key, measured(settled, place, samples, kRuns)).first->second;
  }
  const Profile& two = of(settled, place, 2);
  const Profile& four = of(settled, place, 4);
  return known_.emplace(key, extended(two, four, samples)).first->second;
}

// Measures on several simulated ranks, which compute the same units at about the same time, and
// takes the mean of their times.
Profile UnitProfiles::measured(const RunOptions& settled, const MeshPlace& place, int64_t samples,
                               int runs) const {
  std::vector<std::optional<Profile>> each(static_cast<size_t>(at_once_));
  std::vector<std::exception_ptr> errors(each.size());
  const auto measure_one = [&](size_t rank) {
    try {
      ThreadPool pool(threads_);
      const UseThreads use(pool);
      const std::unique_ptr<Model> model = make_model(settled.model, model_context(settled, place));
      Batch batch = random_batch(model->configuration(), samples, model->targets_per_sample());
      if (place.size(Axis::context) > 1) {
        batch.deal_out(model->attention_window(), place.place(Axis::context),
                       place.size(Axis::context));
      }
      each[rank] = pipeline::profile_model(*model, batch.view(),
                                           {.dtype = settled.training.replica.storage.dtype}, runs);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t rank = 1; rank < each.size(); ++rank) others.emplace_back(measure_one, rank);
    measure_one(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  Profile mean = *each.front();
  for (size_t unit = 0; unit < mean.layers.size(); ++unit) {
    for (const auto member : {&Layer::forward, &Layer::backward}) {
      double sum = 0;
      for (const auto& profile : each) sum += profile->layers[unit].*member;
      mean.layers[unit].*member = sum / static_cast<double>(each.size());
    }
  }
  return mean;
}

}  // namespace tutti::training::planner
