#include "collectives/cost/planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/text.h"

namespace tutti {

namespace {

// Programs with more steps than this, counted over all ranks, are not walked.
constexpr size_t kLongestPlan = 20'000;

// Returns the index of the size class that contains `bytes`. There are two classes per doubling.
uint32_t size_class_of(uint64_t bytes) {
  if (bytes < 4) return static_cast<uint32_t>(bytes);
  const auto doublings = static_cast<uint32_t>(std::bit_width(bytes) - 1);
  return 2 * doublings + static_cast<uint32_t>((bytes >> (doublings - 1)) & 1);
}

uint64_t key_of(const CallToPlan& wanted) {
  return static_cast<uint64_t>(wanted.collective) | static_cast<uint64_t>(wanted.dtype) << 8 |
         static_cast<uint64_t>(wanted.at_least) << 16 | uint64_t{wanted.direct} << 23 |
         uint64_t{size_class_of(wanted.bytes)} << 24 |
         uint64_t{static_cast<uint32_t>(wanted.root)} << 32;
}

}  // namespace

uint64_t typical_size(uint64_t bytes) {
  if (bytes < 4) return bytes;
  const int low_bits = std::bit_width(bytes) - 2;
  return bytes >> low_bits << low_bits;
}

std::vector<const Algorithm*> algorithms_to_choose_from(Collective collective,
                                                        std::span<const Algorithm* const> more) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : built_in_algorithms()) {
    if (algorithm.collective == collective) found.push_back(&algorithm);
  }
  for (const Algorithm* algorithm : more) {
    if (algorithm->collective == collective) found.push_back(algorithm);
  }
  return found;
}

std::string why_not(const Algorithm& algorithm, const Shape& shape, const CallToPlan& wanted) {
  const Grade grade = grade_of(algorithm, shape);
  if (grade < wanted.at_least) {
    return cat("its grade is ", name(grade), "; the call requires ", name(wanted.at_least));
  }
  if (wanted.direct && !algorithm.direct) return "it forwards blocks whose lengths are unknown";
  Shape rooted = shape;
  rooted.root = has_root(wanted.collective) ? wanted.root : 0;
  const std::string reason = why_unsupported(algorithm, rooted);
  return reason.empty() ? reason : cat("does not run on ", shape.ranks, " ranks: ", reason);
}

Error no_algorithm(const Shape& shape, const CallToPlan& wanted) {
  return {ErrorCode::unsupported,
          cat("no algorithm for ", name(wanted.collective), " that is ",
              wanted.direct ? "direct and " : "", name(wanted.at_least), " runs on ", shape.ranks,
              " ranks", has_root(wanted.collective) ? cat(" from root ", wanted.root) : "")};
}

// Limits the work, because all ranks plan at the same time. A thousand ranks on one host would
// otherwise take minutes.
bool Planner::are_walked() const {
  constexpr int64_t kMostProgramsByACore = 8192;
  const int64_t ranks_on_a_core =
      std::max(1, machine_.hosts.largest() / std::max(1, machine_.model.cores));
  return shape_.ranks * ranks_on_a_core <= kMostProgramsByACore;
}

const Algorithm& Planner::choose(const CallToPlan& wanted) {
  CallToPlan typical = wanted;
  typical.bytes = typical_size(wanted.bytes);
  typical.root = typical_root(wanted.collective, wanted.root);
  const Algorithm*& chosen = chosen_[{key_of(typical), typical.width}];
  if (chosen == nullptr) {
    chosen = &choose_again(typical);
    drop_long_plans();
  }
  return *chosen;
}

int Planner::typical_root(Collective collective, int root) {
  if (!has_root(collective)) return 0;
  const auto [known, is_new] = typical_roots_.try_emplace({collective, root}, 0);
  if (!is_new) return known->second;
  const std::vector<const Algorithm*> algorithms = algorithms_to_choose_from(collective, more_);
  const auto supported = [&](int of) {
    Shape shape = shape_;
    shape.root = of;
    std::vector<bool> by_algorithm;
    for (const Algorithm* a : algorithms)
      by_algorithm.push_back(why_unsupported(*a, shape).empty());
    return by_algorithm;
  };
  const std::vector<bool> wanted = supported(root);
  while (known->second < root && supported(known->second) != wanted) ++known->second;
  return known->second;
}

// Returns true if a message has no room for one element of each of its chunks. That happens among
// thousands of ranks, or if an element is a large block of values.
bool Planner::is_too_wide(const Plan& plan, const CallToPlan& wanted) const {
  const uint64_t widest = widest_form(plan.program, size_of(wanted.dtype) * wanted.width,
                                      accumulator_bytes(wanted.dtype));
  return static_cast<size_t>(plan.program.chunks_per_message) * widest >
         machine_.limits.collective_bytes();
}

// Chooses the cheapest algorithm. Candidates are tried in the order of their rough times. The walk
// of a candidate ends as soon as its time exceeds the best time so far.
const Algorithm& Planner::choose_again(const CallToPlan& wanted) {
  std::vector<std::pair<double, const Algorithm*>> candidates;
  for (const Algorithm* algorithm : algorithms_to_choose_from(wanted.collective, more_)) {
    if (!why_not(*algorithm, shape_, wanted).empty()) continue;
    candidates.emplace_back(rough_seconds(*algorithm, wanted), algorithm);
  }
  std::ranges::stable_sort(candidates, {}, [](const auto& c) { return c.first; });
  const Algorithm* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [rough, algorithm] : candidates) {
    const Plan& first = plans_of(*algorithm, wanted.root, false)[0];
    if (is_too_wide(first, wanted)) continue;
    // If the communicator is too large to be walked, the rough order decides.
    if (!are_walked()) return *algorithm;
    if (lower_bound(first, wanted.bytes, wanted.dtype, machine_) >= least) continue;
    const double seconds = price(*algorithm, wanted, least).seconds;
    if (best == nullptr || seconds < least) {
      best = algorithm;
      least = seconds;
    }
  }
  if (best != nullptr) return *best;
  throw no_algorithm(shape_, wanted);
}

std::vector<Candidate> Planner::explain(const CallToPlan& wanted) {
  std::vector<Candidate> candidates;
  for (const Algorithm* algorithm : algorithms_to_choose_from(wanted.collective, more_)) {
    Candidate candidate{
        .algorithm = algorithm, .excluded = why_not(*algorithm, shape_, wanted), .prediction = {}};
    if (candidate.excluded.empty() &&
        is_too_wide(plans_of(*algorithm, wanted.root, false)[0], wanted)) {
      candidate.excluded = "a message has no room for an element of each chunk that it carries";
    }
    if (candidate.excluded.empty()) candidate.prediction = price(*algorithm, wanted);
    candidates.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.excluded.empty() != b.excluded.empty()) return a.excluded.empty();
    return a.prediction.seconds < b.prediction.seconds;
  });
  return candidates;
}

double Planner::rough_seconds(const Algorithm& algorithm, const CallToPlan& wanted) {
  constexpr uint64_t kOfASlice = 16 << 10;  // approximate size of a slice
  const Plan& first = plans_of(algorithm, wanted.root, false)[0];
  const double seconds = rough_time(first, wanted.bytes, wanted.dtype, machine_);
  if (!algorithm.is_pipeline) return seconds;
  return seconds + std::max(0, shape_.ranks - 2) *
                       rough_time(first, std::min(wanted.bytes, kOfASlice), wanted.dtype, machine_);
}

Prediction Planner::price(const Algorithm& algorithm, const CallToPlan& wanted, double give_up) {
  const Plan& first = plans_of(algorithm, wanted.root, false)[0];
  const size_t steps = first.program.steps.size() * static_cast<size_t>(shape_.ranks);
  if (!are_walked() || steps > kLongestPlan) {
    return {.seconds = rough_seconds(algorithm, wanted), .rough = true};
  }
  return predict(plans_of(algorithm, wanted.root, true), wanted.bytes, wanted.dtype, machine_,
                 give_up);
}

// Drops plans that grow with the number of ranks and would need megabytes. They are made again if
// needed.
void Planner::drop_long_plans() {
  constexpr size_t kMostStepsKept = 1000;
  std::erase_if(plans_, [](const auto& entry) {
    const std::vector<Plan>& plans = entry.second;
    return plans.empty() || plans.size() * plans[0].program.steps.size() > kMostStepsKept;
  });
}

const std::vector<Plan>& Planner::plans_of(const Algorithm& algorithm, int root, bool all_ranks) {
  std::vector<Plan>& plans = plans_[{algorithm.id, root}];
  const auto needed = static_cast<size_t>(all_ranks ? shape_.ranks : 1);
  while (plans.size() < needed) {
    Shape shape = shape_;
    shape.rank = static_cast<int32_t>(plans.size());
    shape.root = root;
    plans.push_back(make_plan(algorithm.collective, shape, program_of(algorithm, shape)));
  }
  return plans;
}

}  // namespace tutti
