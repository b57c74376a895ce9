#include "training/simulate/step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/simulate/joint_schedule.h"
#include "topology/layout.h"

namespace tutti::training {

namespace {

using pipeline::Action;
using pipeline::Entry;
using pipeline::Kind;
using pipeline::Plan;
using Step = JointSchedule::Step;

constexpr Step kNone = -1;

size_t index(int64_t i) { return static_cast<size_t>(i); }

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
}

void check_bytes(std::string_view name, double bytes, double least) {
  if (std::isfinite(bytes) && bytes >= least) return;
  refuse(cat(bytes, " bytes of ", name), cat("give a finite number of at least ", least));
}

// Bytes of a chunk's buckets, in the order in which they are summed.
std::vector<double> cut_into_buckets(const StepWork& work, int64_t most) {
  const double count = std::ceil(work.gradient_bytes / work.bucket_bytes);
  if (count > static_cast<double>(most)) {
    throw Error(ErrorCode::unsupported, cat(count, " buckets of each chunk are too many to play"),
                {.remedy = "take larger buckets"});
  }
  std::vector<double> buckets(index(static_cast<int64_t>(count)), work.bucket_bytes);
  if (!buckets.empty()) buckets.back() = work.gradient_bytes - (count - 1) * work.bucket_bytes;
  return buckets;
}

class Builder {
 public:
  Builder(const Plan& plan, const StepWork& work, const std::vector<Place>& places,
          const Algorithm& all_reduce, const ScheduleOptions& options)
      : plan_(plan),
        work_(work),
        costs_(plan.schedule, work.costs),
        places_(places),
        all_reduce_(all_reduce),
        options_(options),
        ranks_(static_cast<int32_t>(places.size())),
        data_(ranks_ / plan.schedule.ranks) {}

  StepSchedule build() {
    make_groups();
    refuse_if_too_long();
    StepSchedule step{.schedule = make_schedule(), .computing = {}, .compute_us = compute_times()};
    groups_.clear();
    buckets_.clear();
    step.computing = make_schedule();
    return step;
  }

 private:
  // Ranks that sum their gradients.
  struct Group {
    std::vector<int32_t> members;
    const std::vector<int>* chunks;  // ascending
    size_t sum;                      // which of sums_
  };
  struct Sum {
    Layout layout;
    int32_t ranks;
    Schedule schedule;
  };
  // When the gradients of a bucket are there, on a rank.
  struct Made {
    int chunk;
    std::vector<Step> buckets;
  };

  Schedule make_schedule() {
    joint_ = JointSchedule(ranks_, symmetry_, alike_);
    made_.assign(index(ranks_ / alike_), {});
    for (int32_t data = 0; data < data_; data += alike_) add_pipeline(data);
    for (const Group& group : groups_) add_sums(group);
    return joint_.take();
  }

  // Ranks are played as one where they are alike in every sum.
  void make_groups() {
    alike_ = data_ % options_.alike == 0 ? options_.alike : 1;
    if (make_groups_of(alike_)) return;
    alike_ = 1;
    symmetry_ = Symmetry::none;
    make_groups_of(1);
  }

  bool make_groups_of(int32_t alike) {
    groups_.clear();
    sums_.clear();
    buckets_.clear();
    symmetry_ = alike > 1 ? Symmetry::rotation : Symmetry::none;
    if (work_.gradient_bytes == 0) return true;
    for (std::vector<int32_t>& members : ranks_that_sum(plan_, data_)) {
      const int stage = members.front() / data_;
      Group group{
          .members = std::move(members), .chunks = &plan_.ranks[index(stage)].chunks, .sum = 0};
      if (group.members.size() == 1) continue;
      group.sum = sum_of(group.members, alike);
      const Schedule& its = sums_[group.sum].schedule;
      if (its.alike != alike || (!groups_.empty() && its.symmetry != symmetry_)) return false;
      symmetry_ = its.symmetry;
      groups_.push_back(std::move(group));
    }
    if (!groups_.empty()) buckets_ = cut_into_buckets(work_, options_.most_steps);
    return true;
  }

  // Groups that lie alike have one schedule.
  size_t sum_of(const std::vector<int32_t>& members, int32_t alike) {
    std::vector<Place> places;
    places.reserve(members.size());
    for (const int32_t rank : members) places.push_back(places_[index(rank)]);
    const Shape shape{.ranks = static_cast<int32_t>(members.size()), .layout = Layout::of(places)};
    const auto known = std::ranges::find_if(sums_, [&](const Sum& sum) {
      return sum.ranks == shape.ranks && sum.layout == shape.layout;
    });
    if (known != sums_.end()) return index(known - sums_.begin());
    ScheduleOptions options = options_;
    options.alike = alike;
    sums_.push_back({shape.layout, shape.ranks, tutti::make_schedule(all_reduce_, shape, options)});
    return sums_.size() - 1;
  }

  void refuse_if_too_long() const {
    const int32_t pipelines = data_ / alike_;
    double steps = 0;
    for (const pipeline::RankPlan& rank : plan_.ranks) {
      steps += static_cast<double>(rank.actions.size()) * pipelines;
    }
    for (const Group& group : groups_) {
      const Schedule& its = sums_[group.sum].schedule;
      const double each = static_cast<double>(its.steps()) + 2.0 * its.walked();
      steps += each * static_cast<double>(buckets_.size() * group.chunks->size());
    }
    if (steps <= static_cast<double>(options_.most_steps)) return;
    throw Error(ErrorCode::unsupported,
                cat("a training step with ", all_reduce_.name, " on ", ranks_, " ranks has some ",
                    static_cast<int64_t>(steps), " steps to walk"),
                {.cause = cat("the limit is ", options_.most_steps, " steps over all ranks"),
                 .remedy = "take larger buckets, an algorithm with fewer messages, such as "
                           "hierarchical or halving_doubling, or fewer ranks or micro-batches"});
  }

  int32_t rank_at(int stage, int32_t data) const { return stage * data_ + data; }

  // Of what an entry makes or needs, in one direction, through a chunk.
  size_t cell(const Entry& entry) const {
    const int64_t direction = entry.kind == Kind::forward ? 0 : 1;
    return index((direction * plan_.schedule.micro_batches + entry.micro_batch) *
                     plan_.schedule.chunks +
                 entry.chunk);
  }

  // All stages with this place in the data axis.
  void add_pipeline(int32_t data) {
    const size_t cells = 2 * index(plan_.schedule.micro_batches) * index(plan_.schedule.chunks);
    begins_.assign(cells, kNone);
    comes_.assign(cells, kNone);
    for (int stage = 0; stage < plan_.schedule.ranks; ++stage) add_stage(stage, data);
    for (int stage = 0; stage < plan_.schedule.ranks; ++stage) {
      for (const Action& action : plan_.ranks[index(stage)].actions) {
        if (action.kind != Action::Kind::receive) continue;
        const size_t at = cell(action.entry);
        joint_.order(rank_at(stage, data), comes_[at], begins_[at]);
      }
    }
  }

  void add_stage(int stage, int32_t data) {
    const int32_t rank = rank_at(stage, data);
    std::vector<int64_t> backwards(index(plan_.schedule.chunks), 0);  // that are still to come
    for (const Action& action : plan_.ranks[index(stage)].actions) {
      if (action.kind != Action::Kind::compute) continue;
      backwards[index(action.entry.chunk)] += makes_weight_gradient(action.entry) ? 1 : 0;
    }
    std::vector<Step> sent(index(plan_.schedule.ranks), kNone);  // the last one, by peer
    Step last = kNone;
    for (const Action& action : plan_.ranks[index(stage)].actions) {
      if (action.kind == Action::Kind::compute) {
        const bool completes =
            makes_weight_gradient(action.entry) && --backwards[index(action.entry.chunk)] == 0;
        last = add_entry(rank, action.entry, last, completes);
      } else if (action.kind == Action::Kind::send) {
        add_message(rank, action, data, last, sent[index(action.peer)]);
      }
    }
  }

  // The last backward of a chunk is cut where a bucket is complete.
  Step add_entry(int32_t rank, const Entry& entry, Step last, bool completes) {
    const bool is_cut = completes && !buckets_.empty();
    Made parts{.chunk = entry.chunk, .buckets = {}};
    for (const double bytes : is_cut ? buckets_ : std::vector<double>{work_.gradient_bytes}) {
      const double part = is_cut ? bytes / work_.gradient_bytes : 1;
      const Step step = joint_.compute(rank, costs_.of(entry) * part);
      if (last != kNone) joint_.order(rank, last, step);
      parts.buckets.push_back(last = step);
    }
    if (entry.kind != Kind::backward_weight) begins_[cell(entry)] = parts.buckets.front();
    if (is_cut) made_[index(rank / alike_)].push_back(std::move(parts));
    return last;
  }

  // What the chunk next in the entry's direction needs.
  void add_message(int32_t rank, const Action& action, int32_t data, Step made, Step& before) {
    const auto [step, comes] =
        joint_.message(rank, rank_at(action.peer, data), work_.activation_bytes);
    joint_.order(rank, made, step);
    if (before != kNone) joint_.order(rank, before, step);
    before = step;
    Entry consumer = action.entry;
    consumer.chunk += action.entry.kind == Kind::forward ? 1 : -1;
    comes_[cell(consumer)] = comes;
  }

  void add_sums(const Group& group) {
    const Schedule& its = sums_[group.sum].schedule;
    std::vector<Step> before(index(its.walked()), kNone);
    for (auto chunk = group.chunks->rbegin(); chunk != group.chunks->rend(); ++chunk) {
      for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        const auto ends = joint_.collective(its, buckets_[bucket], group.members);
        for (size_t i = 0; i < ends.size(); ++i) {
          const int32_t rank = group.members[i * index(alike_)];
          joint_.order(rank, made(rank, *chunk).buckets[bucket], ends[i].first);
          if (before[i] != kNone) joint_.order(rank, before[i], ends[i].first);
          before[i] = ends[i].second;
        }
      }
    }
  }

  const Made& made(int32_t rank, int chunk) const {
    return *std::ranges::find(made_[index(rank / alike_)], chunk, &Made::chunk);
  }

  std::vector<double> compute_times() const {
    std::vector<double> times;
    for (const std::vector<Entry>& entries : plan_.schedule.table) {
      double sum = 0;
      for (const Entry& entry : entries) sum += costs_.of(entry);
      times.push_back(sum);
    }
    return times;
  }

  const Plan& plan_;
  const StepWork& work_;
  pipeline::EntryCosts costs_;
  const std::vector<Place>& places_;
  const Algorithm& all_reduce_;
  const ScheduleOptions& options_;
  int32_t ranks_;
  int32_t data_;  // ranks of a stage
  int32_t alike_ = 1;
  Symmetry symmetry_ = Symmetry::none;
  std::vector<Sum> sums_;
  std::vector<Group> groups_;
  std::vector<double> buckets_;  // of a chunk; none where nobody shares its gradients
  JointSchedule joint_{0};
  std::vector<Step> begins_;             // by cell: of the entry; of the pipeline being added
  std::vector<Step> comes_;              // by cell: what the entry needs from another rank
  std::vector<std::vector<Made>> made_;  // by rank that is walked
};

}  // namespace

std::vector<std::vector<int32_t>> ranks_that_sum(const Plan& plan, int data) {
  std::vector<std::vector<int32_t>> groups;
  for (int stage = 0; stage < plan.schedule.ranks; ++stage) {
    const std::vector<int>& holders = plan.holders[index(plan.ranks[index(stage)].chunks.front())];
    if (holders.front() != stage) continue;
    std::vector<int32_t>& members = groups.emplace_back();
    for (const int holder : holders) {
      for (int32_t i = 0; i < data; ++i) members.push_back(holder * data + i);
    }
  }
  return groups;
}

StepSchedule make_step_schedule(const Plan& plan, const StepWork& work,
                                const std::vector<Place>& places, const Algorithm& all_reduce,
                                const ScheduleOptions& options) {
  const auto stages = index(plan.schedule.ranks);
  if (places.empty() || places.size() % stages != 0) {
    refuse(cat(stages, " stages do not divide ", places.size(), " ranks"),
           "take a multiple of the stages");
  }
  if (plan.schedule.updates != pipeline::Updates::flushed) {
    refuse(cat("a step of ", plan.schedule.name, " has no end: its pipeline does not run empty"),
           "take a schedule that is flushed, such as 1f1b");
  }
  check_bytes("activations", work.activation_bytes, 0);
  check_bytes("gradients", work.gradient_bytes, 0);
  check_bytes("a bucket", work.bucket_bytes, 1);
  return Builder(plan, work, places, all_reduce, options).build();
}

SimulatedStep simulate_step(const StepSchedule& step, Network& network,
                            const SimulationOptions& options) {
  SimulatedStep result{.network = simulate(step.schedule, network, options)};
  result.compute_us = std::ranges::max(step.compute_us);
  const double time = result.network.time_us;
  for (const double compute : step.compute_us) result.idle_us.push_back(time - compute);
  SimulationOptions instant = options;
  instant.instant_messages = true;
  instant.give_up_us = std::numeric_limits<double>::infinity();
  const double alone = simulate(step.computing, network, instant).time_us;
  result.bubble_us = std::max(0.0, alone - result.compute_us);
  result.exposed_us = std::max(0.0, time - alone);
  result.efficiency = time > 0 ? result.compute_us / time : 1;
  return result;
}

}  // namespace tutti::training
