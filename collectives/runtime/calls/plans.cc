#include "collectives/runtime/calls/plans.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/proof/rendezvous.h"

namespace tutti {

namespace {

Plan plan_of(const Algorithm& algorithm, const Shape& shape, bool in_place, Arithmetic arithmetic) {
  return make_plan(algorithm.collective, shape, program_of(algorithm, shape, arithmetic), in_place);
}

}  // namespace

CallToPlan wanted_of(const Request& request, int ranks, Grade at_least) {
  // Assumed size of private blocks. The choice of the algorithm must not depend on their lengths,
  // which are not known on all ranks.
  constexpr uint64_t kUnknown = 64 << 10;
  const uint64_t bytes = request.count * size_of(request.dtype());
  return {.collective = request.collective,
          .root = request.root,
          .bytes = request.blocks_are_private() ? kUnknown
                   : request.uneven             ? bytes / static_cast<uint64_t>(ranks)
                                                : bytes,
          .dtype = request.dtype(),
          .at_least = at_least,
          .direct = request.blocks_are_private(),
          .width = request.op.width()};
}

// The choice of algorithms is the same on every rank, so the ranks of a process make it once.
struct Plans::Choosing {
  Kind kind;  // kind on the rank that created this object
  std::string model;
  std::mutex mutex;  // guards `planner`
  Planner planner;

  bool serves(const Kind& other, const std::string& other_model) const {
    Kind same = kind;
    same.shape.rank = other.shape.rank;
    same.lends = other.lends;
    return same == other && model == other_model;
  }
};

// Returns the Choosing of this kind and model, or creates it. It is shared only if there are no
// additional algorithms, because those are objects of one rank.
std::shared_ptr<Plans::Choosing> Plans::choosing_for(const Kind& kind, const CostModel& model,
                                                     std::vector<const Algorithm*> more) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<Choosing>> all;
  const std::string json = to_json(model);
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& one) { return one.expired(); });
  for (const std::weak_ptr<Choosing>& one : all) {
    const std::shared_ptr<Choosing> known = one.lock();
    if (more.empty() && known != nullptr && known->serves(kind, json)) return known;
  }
  const bool is_shared = more.empty();
  const Machine machine{.model = model,
                        .limits = kind.limits,
                        .hosts = kind.hosts,
                        .near_shm = kind.any_shm,
                        .far = kind.far};
  std::shared_ptr<Choosing> made(
      new Choosing{kind, json, {}, Planner(kind.shape, machine, std::move(more))});
  if (is_shared) all.push_back(made);
  return made;
}

Plans::Plans(const Kind& kind, const CostModel& model, std::vector<const Algorithm*> more)
    : kind_(kind), choosing_(choosing_for(kind, model, std::move(more))) {}

Shape Plans::shape(int root) const {
  Shape shape = kind_.shape;
  shape.root = root;
  return shape;
}

const Algorithm& Plans::choose(const CallToPlan& wanted) {
  const std::lock_guard lock(choosing_->mutex);
  return choosing_->planner.choose(wanted);
}

const Plan& Plans::plan(const Algorithm& algorithm, int root, bool in_place,
                        Arithmetic arithmetic) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Plan>& plan = plans_[{algorithm.id, root, in_place, arithmetic}];
  if (!plan) {
    plan = std::make_unique<Plan>(plan_of(algorithm, shape(root), in_place, arithmetic));
    plan->without_buffers = kind_.lends && needs_no_buffers(algorithm, *plan, in_place, arithmetic);
  }
  return *plan;
}

// Returns true if a proof shows that the programs terminate without buffering (rendezvous.h). For
// more than 128 ranks and for long programs, the proof would take too long: it returns false.
bool Plans::needs_no_buffers(const Algorithm& algorithm, const Plan& mine, bool in_place,
                             Arithmetic arithmetic) const {
  constexpr size_t kMostSteps = 50'000;
  const int ranks = mine.shape.ranks;
  constexpr int kMostRanks = 128;
  if (ranks > kMostRanks) return false;
  if (mine.program.steps.size() * static_cast<size_t>(ranks) > kMostSteps) return false;
  return ends_without_buffers(make_plans(algorithm, mine.shape, arithmetic, in_place));
}

PlanCache::PlanCache(const CostModel& model, std::vector<const Algorithm*> more)
    : model_(model), more_(std::move(more)) {}

std::shared_ptr<Plans> PlanCache::plans_for(const Plans::Kind& kind) {
  constexpr size_t kMostKept = 16;
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(kept_, [&](const auto& p) { return p->kind() == kind; });
  if (known != kept_.end()) {
    std::rotate(known, known + 1, kept_.end());
  } else {
    if (kept_.size() == kMostKept) kept_.erase(kept_.begin());
    kept_.push_back(std::make_shared<Plans>(kind, model_, more_));
  }
  return kept_.back();
}

}  // namespace tutti
