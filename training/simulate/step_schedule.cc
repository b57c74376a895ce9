#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/simulate/joint_schedule.h"
#include "training/simulate/entry_marks.h"
#include "training/simulate/group_schedules.h"
#include "training/simulate/parameter_gathers.h"
#include "training/simulate/step.h"

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
  refuse(cat(bytes, " bytes of ", name), cat("use a finite number of at least ", least));
}

class Builder {
 public:
  Builder(const Plan& plan, const StepWork& work, const std::vector<Place>& places,
          const Algorithm& sum, const ScheduleOptions& options)
      : plan_(plan),
        work_(work),
        costs_(plan.schedule, work.costs),
        places_(places),
        sum_(sum),
        options_(options),
        ranks_(static_cast<int32_t>(places.size())),
        tensor_(work.tensor.ranks),
        data_(ranks_ / plan.schedule.ranks / tensor_) {}

  StepSchedule build() {
    make_groups();
    make_teams();
    refuse_if_too_long();
    StepSchedule step{.schedule = make_schedule(), .computing = {}, .compute_us = compute_times()};
    groups_.clear();
    buckets_.clear();
    step.computing = make_schedule();
    return step;
  }

 private:
  // A group of ranks that sum their gradients.
  struct Group {
    std::vector<int32_t> members;
    const std::vector<int>* chunks;  // chunks of the group, ascending
    size_t sum;                      // index of the group's sum in schedules_
    size_t gather = 0;               // ZeRO: index of the group's gather in schedules_
  };
  // The tensor-parallel ranks that have the same place on the other axes, and the indices of their
  // collectives in schedules_.
  struct Team {
    std::vector<int32_t> members;
    size_t sum = 0;
    size_t scatter = 0;
    size_t gather = 0;
  };
  // The steps of a rank after which the gradients of each bucket are ready.
  struct Made {
    int chunk;
    std::vector<Step> buckets;
  };

  Schedule make_schedule() {
    joint_ = JointSchedule(ranks_, symmetry_, alike_);
    made_.assign(index(ranks_ / alike_), {});
    last_.assign(index(ranks_ / alike_), kNone);
    gathers_.clear();
    for (const Group& group : groups_) add_gathers(group);
    for (int32_t data = 0; data < data_; data += alike_) add_pipeline(data);
    for (const Group& group : groups_) add_sums(group);
    for (int32_t rank = 0; work_.optimizer_us > 0 && rank < ranks_; rank += alike_) {
      joint_.order(rank, last_[index(rank / alike_)], joint_.compute(rank, work_.optimizer_us));
    }
    return joint_.take();
  }

  const std::vector<Entry>& row_of(const Group& group) const {
    return plan_.schedule.table[index(group.members.front() / (data_ * tensor_))];
  }

  void add_gathers(const Group& group) {
    if (work_.zero.stage == 0) return;
    gathers_.add(joint_, schedules_[group.gather], work_.gradient_bytes, group.members, alike_,
                 row_of(group), work_.zero.stage);
  }

  // Creates the groups. The ranks of a host are simulated as one if they are equivalent in every
  // sum and gather.
  void make_groups() {
    alike_ = tensor_ == 1 && data_ % options_.alike == 0 ? options_.alike : 1;
    if (make_groups_of(alike_)) return;
    alike_ = 1;
    symmetry_ = Symmetry::none;
    make_groups_of(1);
  }

  bool make_groups_of(int32_t alike) {
    groups_.clear();
    schedules_.clear();
    buckets_.clear();
    symmetry_ = alike > 1 ? Symmetry::rotation : Symmetry::none;
    if (work_.gradient_bytes == 0) return true;
    for (std::vector<int32_t>& members : ranks_that_sum(plan_, data_, tensor_)) {
      const int stage = members.front() / (data_ * tensor_);
      Group group{
          .members = std::move(members), .chunks = &plan_.ranks[index(stage)].chunks, .sum = 0};
      if (group.members.size() == 1) continue;
      group.sum = schedules_.find(sum_, places_of(group.members), of(alike));
      const Schedule& its = schedules_[group.sum];
      if (its.alike != alike || (!groups_.empty() && its.symmetry != symmetry_)) return false;
      symmetry_ = its.symmetry;
      if (work_.zero.stage > 0) {
        group.gather = schedules_.find(*work_.zero.all_gather, places_of(group.members), of(alike));
        const Schedule& gather = schedules_[group.gather];
        if (gather.alike != alike || gather.symmetry != symmetry_) return false;
      }
      groups_.push_back(std::move(group));
    }
    if (groups_.empty()) return true;
    buckets_ = cut_into_buckets(work_.gradient_bytes, work_.bucket_bytes, options_.most_steps);
    return true;
  }

  std::vector<Place> places_of(const std::vector<int32_t>& members) const {
    std::vector<Place> places;
    places.reserve(members.size());
    for (const int32_t rank : members) places.push_back(places_[index(rank)]);
    return places;
  }

  ScheduleOptions of(int32_t alike) const {
    ScheduleOptions options = options_;
    options.alike = alike;
    return options;
  }

  void make_teams() {
    teams_.resize(index(plan_.schedule.ranks) * index(data_));
    for (size_t number = 0; number < teams_.size(); ++number) {
      Team& team = teams_[number];
      for (int32_t i = 0; i < tensor_; ++i) {
        team.members.push_back(static_cast<int32_t>(number) * tensor_ + i);
      }
      if (tensor_ == 1) continue;
      const std::vector<Place> places = places_of(team.members);
      team.gather = schedules_.find(*work_.tensor.all_gather, places, of(1));
      if (work_.tensor.shares_rows) {
        team.scatter = schedules_.find(*work_.tensor.reduce_scatter, places, of(1));
      } else {
        team.sum = schedules_.find(*work_.tensor.all_reduce, places, of(1));
      }
    }
  }

  void refuse_if_too_long() const {
    const int32_t pipelines = data_ / alike_;
    const auto steps_of = [&](size_t collective) {
      const Schedule& its = schedules_[collective];
      return static_cast<double>(its.steps()) + 2.0 * its.walked();
    };
    double steps = 0, entries = 0;
    for (const pipeline::RankPlan& rank : plan_.ranks) {
      steps += static_cast<double>(rank.actions.size()) * pipelines * tensor_;
    }
    for (const auto& row : plan_.schedule.table) entries += static_cast<double>(row.size());
    for (const Group& group : groups_) {
      steps += steps_of(group.sum) * static_cast<double>(buckets_.size() * group.chunks->size());
      const auto waits = waits_for_gather(row_of(group), work_.zero.stage);
      steps += steps_of(group.gather) * static_cast<double>(std::ranges::count(waits, true));
    }
    for (const Team& team : teams_) {
      if (tensor_ == 1) break;
      const bool rows = work_.tensor.shares_rows;
      const double sum = rows ? steps_of(team.scatter) + steps_of(team.gather) : steps_of(team.sum);
      steps += sum * sums_in(Kind::forward) * entries / plan_.schedule.ranks;
    }
    if (steps <= static_cast<double>(options_.most_steps)) return;
    throw Error(ErrorCode::unsupported,
                cat("a training step with ", sum_.name, " on ", ranks_, " ranks has some ",
                    static_cast<int64_t>(steps), " steps to simulate"),
                {.cause = cat("the limit is ", options_.most_steps, " steps over all ranks"),
                 .remedy = "use larger buckets, an algorithm with fewer messages, such as "
                           "hierarchical or halving_doubling, or fewer ranks or micro-batches"});
  }

  const Team& team_at(int stage, int32_t data) const {
    return teams_[index(stage) * index(data_) + index(data)];
  }

  // Returns the index of an entry in begins_ and comes_ for the first tensor-parallel rank. The
  // elements for the other tensor-parallel ranks follow.
  size_t cell(const Entry& entry) const {
    const int64_t direction = entry.kind == Kind::forward ? 0 : 1;
    return index(
        ((direction * plan_.schedule.micro_batches + entry.micro_batch) * plan_.schedule.chunks +
         entry.chunk) *
        tensor_);
  }

  // Adds all stages of the pipeline whose place on the data axis is `data`.
  void add_pipeline(int32_t data) {
    const size_t cells =
        2 * index(plan_.schedule.micro_batches) * index(plan_.schedule.chunks) * index(tensor_);
    begins_.assign(cells, kNone);
    comes_.assign(cells, kNone);
    for (int stage = 0; stage < plan_.schedule.ranks; ++stage) add_stage(stage, data);
    for (int stage = 0; stage < plan_.schedule.ranks; ++stage) {
      for (const Action& action : plan_.ranks[index(stage)].actions) {
        if (action.kind == Action::Kind::receive) await(team_at(stage, data), cell(action.entry));
      }
    }
  }

  // Makes the entry whose cell() is `at` wait for its input. Each tensor-parallel rank receives a
  // part of the input. If the ranks do not share rows, they then gather all parts.
  void await(const Team& team, size_t at) {
    const bool gathers = tensor_ > 1 && !work_.tensor.shares_rows;
    std::vector<std::pair<Step, Step>> all;
    if (gathers) all = call(team, team.gather);
    for (size_t i = 0; i < team.members.size(); ++i) {
      const int32_t rank = team.members[i];
      if (!gathers) {
        joint_.order(rank, comes_[at + i], begins_[at + i]);
        continue;
      }
      joint_.order(rank, comes_[at + i], all[i].first);
      joint_.order(rank, all[i].second, begins_[at + i]);
    }
  }

  std::vector<std::pair<Step, Step>> call(const Team& team, size_t collective) {
    return joint_.collective(schedules_[collective], work_.activation_bytes, team.members);
  }

  void add_stage(int stage, int32_t data) {
    const Team& team = team_at(stage, data);
    // by chunk: number of remaining entries that compute weight gradients
    std::vector<int64_t> backwards(index(plan_.schedule.chunks), 0);
    for (const Action& action : plan_.ranks[index(stage)].actions) {
      if (action.kind != Action::Kind::compute) continue;
      backwards[index(action.entry.chunk)] += makes_weight_gradient(action.entry) ? 1 : 0;
    }
    // `last`: last step of each tensor-parallel rank. `sent`: for each peer stage, the last message
    // of each tensor-parallel rank.
    std::vector<Step> last(team.members.size(), kNone);
    std::vector<std::vector<Step>> sent(index(plan_.schedule.ranks), last);
    std::vector<std::vector<Step>> ends;  // by entry: last steps of the ranks
    for (const Action& action : plan_.ranks[index(stage)].actions) {
      if (action.kind == Action::Kind::compute) {
        const bool completes =
            makes_weight_gradient(action.entry) && --backwards[index(action.entry.chunk)] == 0;
        add_entry(team, action.entry, completes, last);
        await_parameters(stage, data, action.entry, ends);
        ends.push_back(last);
      } else if (action.kind == Action::Kind::send) {
        add_messages(team, action, data, last, sent[index(action.peer)]);
      }
    }
    for (size_t i = 0; i < last.size(); ++i) last_[index(team.members[i] / alike_)] = last[i];
  }

  // Makes an entry wait for its parameters. In ZeRO stage 3, makes their gather wait for the end of
  // the entry two places before. `ends`: for each earlier entry, the last steps of the ranks.
  void await_parameters(int stage, int32_t data, const Entry& entry,
                        const std::vector<std::vector<Step>>& ends) {
    const Team& team = team_at(stage, data);
    for (size_t i = 0; !gathers_.empty() && i < team.members.size(); ++i) {
      const size_t group = index(stage) * index(tensor_) + i;
      const auto gather = gathers_.of(group, ends.size(), index(data / alike_));
      if (!gather) continue;
      const int32_t rank = team.members[i];
      joint_.order(rank, gather->second, begins_[cell(entry) + i]);
      if (work_.zero.stage < 3 || ends.size() < 2) continue;
      joint_.order(rank, ends[ends.size() - 2][i], gather->first);
    }
  }

  // Returns the number of sums among tensor-parallel ranks in an entry. backward_weight has none.
  int sums_in(Kind kind) const {
    return tensor_ == 1 || kind == Kind::backward_weight ? 0 : 2 * work_.tensor.blocks;
  }

  // Adds an entry. Its computation is divided at each sum over tensor-parallel ranks and, in the
  // last backward of a chunk, at the completion of each bucket.
  void add_entry(const Team& team, const Entry& entry, bool completes, std::vector<Step>& last) {
    const bool is_cut = completes && !buckets_.empty();
    const bool shares_rows = work_.tensor.shares_rows && sums_in(entry.kind) > 0;
    std::vector<Made> made(team.members.size(), {.chunk = entry.chunk, .buckets = {}});
    bool begun = entry.kind == Kind::backward_weight;  // backward_weight waits for no rank
    const auto append = [&](const std::vector<std::pair<Step, Step>>& steps) {
      for (size_t i = 0; i < steps.size(); ++i) {
        if (last[i] != kNone) joint_.order(team.members[i], last[i], steps[i].first);
        if (!begun) begins_[cell(entry) + i] = steps[i].first;
        last[i] = steps[i].second;
      }
      begun = true;
    };
    if (shares_rows) append(call(team, team.gather));
    double done = 0;
    for (const Mark& mark :
         marks_of(is_cut ? buckets_ : std::vector<double>(), sums_in(entry.kind))) {
      std::vector<std::pair<Step, Step>> parts;
      for (const int32_t rank : team.members) {
        const Step step = joint_.compute(rank, costs_.of(entry) * (mark.at - done));
        parts.emplace_back(step, step);
      }
      done = mark.at;
      append(parts);
      if (mark.completes_bucket) {
        for (size_t i = 0; i < made.size(); ++i) made[i].buckets.push_back(last[i]);
      }
      if (!mark.sums) continue;
      append(call(team, shares_rows ? team.scatter : team.sum));
      if (shares_rows && mark.at < 1) append(call(team, team.gather));
    }
    if (!is_cut) return;
    for (size_t i = 0; i < made.size(); ++i) {
      made_[index(team.members[i] / alike_)].push_back(std::move(made[i]));
    }
  }

  // Sends the entry's output to the next chunk in the entry's direction. `last`: steps that
  // computed the output; `before`: last messages to the same peer stage.
  void add_messages(const Team& team, const Action& action, int32_t data,
                    const std::vector<Step>& last, std::vector<Step>& before) {
    Entry consumer = action.entry;
    consumer.chunk += action.entry.kind == Kind::forward ? 1 : -1;
    const Team& peers = team_at(action.peer, data);
    for (size_t i = 0; i < team.members.size(); ++i) {
      const int32_t rank = team.members[i];
      const auto [step, comes] =
          joint_.message(rank, peers.members[i], work_.activation_bytes / tensor_);
      joint_.order(rank, last[i], step);
      if (before[i] != kNone) joint_.order(rank, before[i], step);
      before[i] = step;
      comes_[cell(consumer) + i] = comes;
    }
  }

  void add_sums(const Group& group) {
    const Schedule& its = schedules_[group.sum];
    std::vector<Step> before(index(its.walked()), kNone);
    for (auto chunk = group.chunks->rbegin(); chunk != group.chunks->rend(); ++chunk) {
      for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        const auto ends = joint_.collective(its, buckets_[bucket], group.members);
        for (size_t i = 0; i < ends.size(); ++i) {
          const int32_t rank = group.members[i * index(alike_)];
          joint_.order(rank, made(rank, *chunk).buckets[bucket], ends[i].first);
          if (before[i] != kNone) joint_.order(rank, before[i], ends[i].first);
          before[i] = last_[index(rank / alike_)] = ends[i].second;
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
      times.push_back(sum + work_.optimizer_us);
    }
    return times;
  }

  const Plan& plan_;
  const StepWork& work_;
  pipeline::EntryCosts costs_;
  const std::vector<Place>& places_;
  const Algorithm& sum_;
  const ScheduleOptions& options_;
  int32_t ranks_;
  int32_t tensor_;
  int32_t data_;  // number of teams per stage
  int32_t alike_ = 1;
  Symmetry symmetry_ = Symmetry::none;
  GroupSchedules schedules_;
  std::vector<Group> groups_;
  std::vector<Team> teams_;  // by stage and place in the data axis
  // bytes of a chunk's buckets; empty if its gradients are not summed
  std::vector<double> buckets_;
  JointSchedule joint_{0};
  // by cell and tensor-parallel rank, in the current pipeline: first step of the entry
  std::vector<Step> begins_;
  std::vector<Step>
      comes_;  // by cell and tensor-parallel rank: the message that brings the entry's input
  std::vector<std::vector<Made>> made_;  // by simulated rank: steps that make gradients ready
  std::vector<Step> last_;               // by simulated rank: the last step before the optimizer
  ParameterGathers gathers_;
};

}  // namespace

StepSchedule make_step_schedule(const Plan& plan, const StepWork& work,
                                const std::vector<Place>& places, const Algorithm& sum,
                                const ScheduleOptions& options) {
  const auto stages = index(plan.schedule.ranks);
  const auto tensor = index(work.tensor.ranks);
  if (places.empty() || places.size() % (stages * tensor) != 0) {
    const std::string each = tensor == 1 ? "" : cat(" of ", tensor, " tensor-parallel ranks");
    refuse(cat(stages, " stages", each, " do not divide ", places.size(), " ranks"),
           "use a multiple of them");
  }
  if (plan.schedule.updates != pipeline::Updates::flushed) {
    refuse(cat("a step of ", plan.schedule.name, " has no end: its pipeline is never flushed"),
           "use a flushed schedule such as 1f1b");
  }
  check_bytes("activations", work.activation_bytes, 0);
  check_bytes("gradients", work.gradient_bytes, 0);
  check_bytes("a bucket", work.bucket_bytes, 1);
  const bool moves_chunks = std::ranges::any_of(
      plan.holders, [](const std::vector<int>& holders) { return holders.size() > 1; });
  if (work.zero.stage > 0 && moves_chunks) {
    refuse(cat("ZeRO with ", plan.schedule.name, ", in which several stages have a chunk"),
           "use a schedule in which each chunk has one stage, such as 1f1b");
  }
  return Builder(plan, work, places, sum, options).build();
}

}  // namespace tutti::training
