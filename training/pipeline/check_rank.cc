#include <algorithm>
#include <string>

#include "base/text.h"
#include "training/pipeline/action_index.h"

namespace tutti::training::pipeline {
namespace {

// Walks through the actions of one rank.
class Walk {
 public:
  Walk(const ActionIndex& action_index, int rank);
  RankBounds run();

 private:
  void compute();
  void take_slot();
  void free_slot();
  void check_version();
  void add_gradient();
  void update();
  void check_end();

  const Action& action() const { return action_index_.at(site_); }
  const Entry& entry() const { return action().entry; }
  const Action& forward_of_entry() const {
    return action_index_.at(action_index_.forward[action_index_.cell(entry())]);
  }
  bool has_updates() const {
    return action_index_.trains && plan_.schedule.updates != Updates::flushed;
  }
  int update_of(const Entry& entry) const { return entry.micro_batch / plan_.schedule.accumulated; }
  [[noreturn]] void refuse_here(const std::string& what, std::string_view cause) const {
    refuse(plan_, site_, what, cause);
  }

  const ActionIndex& action_index_;
  const Plan& plan_;
  const RankPlan& rank_;
  Site site_;
  RankBounds bounds_;

  static constexpr int kFree = -1;
  std::vector<int> slots_;  // by slot: index of the forward action that filled it, or kFree
  int activations_ = 0;
  int received_ = 0;

  int newest_ = 0;                   // newest version of the weights
  int kept_ = 1;                     // current number of versions
  std::vector<int> uses_left_;       // by version: number of entries that still use it
  std::vector<int> added_up_to_;     // by chunk: last micro-batch whose gradient was added
  std::vector<int> gradients_left_;  // by update: number of gradients that are still missing
  Entry last_gradient_{.micro_batch = -1};
};

Walk::Walk(const ActionIndex& action_index, int rank)
    : action_index_(action_index),
      plan_(action_index.plan),
      rank_(plan_.ranks[index(rank)]),
      site_{rank, 0} {
  const auto micro_batches = index(plan_.schedule.micro_batches);
  if (rank_.slots < 0 || index(rank_.slots) > action_index.forward.size()) {
    refuse(plan_, cat("rank ", rank, ": ", rank_.slots, " slots"),
           "the number was not counted from the schedule");
  }
  slots_.assign(index(rank_.slots), kFree);
  added_up_to_.assign(index(plan_.schedule.chunks), -1);
  uses_left_.assign(micro_batches + 1, 0);
  gradients_left_.assign(micro_batches + 1, 0);
  for (const Action& action : rank_.actions) {
    if (action.kind != Action::Kind::compute) continue;
    if (action.version >= 0 && index(action.version) < uses_left_.size()) {
      ++uses_left_[index(action.version)];
    }
    if (has_updates() && makes_weight_gradient(action.entry)) {
      ++gradients_left_[index(update_of(action.entry))];
    }
  }
}

RankBounds Walk::run() {
  bounds_.versions = kept_;
  for (; index(site_.index) < rank_.actions.size(); ++site_.index) {
    if (action().kind == Action::Kind::receive) {
      bounds_.received = std::max(bounds_.received, ++received_);
    }
    if (action().kind == Action::Kind::compute) compute();
    if (action().kind == Action::Kind::update) update();
  }
  check_end();
  return bounds_;
}

void Walk::compute() {
  if (entry().kind == Kind::forward) take_slot();
  if (action().slot != forward_of_entry().slot) {
    refuse_here(cat("names slot ", action().slot, ", but its forward filled slot ",
                    forward_of_entry().slot),
                "slots were reassigned for only some of the actions");
  }
  check_version();
  if (makes_weight_gradient(entry())) add_gradient();
  if (makes_weight_gradient(entry()) || !action_index_.trains) free_slot();
  const Schedule& schedule = plan_.schedule;
  if (needs_input(schedule, entry()) && action_index_.maker(input_of(entry())).rank != site_.rank) {
    --received_;
  }
}

void Walk::take_slot() {
  const int slot = action().slot;
  if (slot < 0 || slot >= rank_.slots) {
    refuse_here(cat("there is no slot ", slot, " of ", rank_.slots), "too few slots in the plan");
  }
  int& holds = slots_[index(slot)];
  if (holds != kFree) {
    refuse_here(cat("slot ", slot, " still holds the activations of ",
                    to_string(plan_, {site_.rank, holds}), ", which its backward needs"),
                "a slot is used again too early, or entries were swapped");
  }
  holds = site_.index;
  bounds_.activations = std::max(bounds_.activations, ++activations_);
}

void Walk::free_slot() {
  slots_[index(action().slot)] = kFree;
  --activations_;
}

void Walk::check_version() {
  const int version = action().version;
  int expected = 0;
  if (entry().kind != Kind::forward) {
    expected = forward_of_entry().version;
  } else if (has_updates()) {
    expected =
        plan_.schedule.updates == Updates::latest ? newest_ : std::max(0, update_of(entry()) - 1);
  }
  if (version != expected) {
    refuse_here(
        cat("uses version ", version, " of the weights; expected version ", expected,
            entry().kind == Kind::forward ? ", by the schedule's rule" : ", as its forward did"),
        "a wrong version, or an update at the wrong place");
  }
  if (version > newest_) {
    refuse_here(
        cat("needs version ", version, " of the weights, but the newest version is ", newest_),
        "fewer micro-batches between updates than are in flight at once");
  }
  if (--uses_left_[index(version)] == 0 && version != newest_) --kept_;
}

void Walk::add_gradient() {
  int& last = added_up_to_[index(entry().chunk)];
  if (entry().micro_batch < last) {
    refuse_here(cat("adds its gradient after that of micro-batch ", last),
                "two entries were swapped; gradients are added in ascending order of "
                "micro-batches, so that all schedules have the same sums");
  }
  last = entry().micro_batch;
  last_gradient_ = entry();
  if (!has_updates()) return;
  if (update_of(entry()) != newest_) {
    refuse_here(
        cat("adds its gradient to the update that makes version ", newest_ + 1,
            ", but the gradient belongs to the update that makes version ", update_of(entry()) + 1),
        "an update is missing, or an entry comes too early");
  }
  --gradients_left_[index(newest_)];
}

void Walk::update() {
  if (!has_updates()) {
    refuse_here("there is no update in this schedule", "its weights change after the last entry");
  }
  if (action().version != newest_ + 1 ||
      action().version > plan_.schedule.micro_batches / plan_.schedule.accumulated) {
    refuse_here(cat("the version before is ", newest_, "; there are ",
                    plan_.schedule.micro_batches / plan_.schedule.accumulated, " updates"),
                "a duplicate update, or a missing earlier update");
  }
  if (gradients_left_[index(newest_)] > 0 || entry() != last_gradient_) {
    refuse_here(cat(gradients_left_[index(newest_)],
                    " gradients are not computed yet; the last one "
                    "is computed by the ",
                    describe(last_gradient_)),
                "an update at the wrong place");
  }
  if (uses_left_[index(newest_)] == 0) --kept_;
  newest_ = action().version;
  bounds_.versions = std::max(bounds_.versions, ++kept_);
  if (kept_ > rank_.versions) {
    refuse_here(cat("with it ", kept_, " versions are needed, but the plan keeps ", rank_.versions),
                "too few versions in the plan");
  }
}

void Walk::check_end() {
  const int updates = has_updates() && bounds_.activations > 0
                          ? plan_.schedule.micro_batches / plan_.schedule.accumulated
                          : 0;
  if (newest_ != updates) {
    refuse(plan_,
           cat("rank ", site_.rank, ", at its end: the weights are at version ", newest_,
               "; expected version ", updates),
           "an update is missing");
  }
  if (rank_.slots != bounds_.activations) {
    refuse(plan_,
           cat("rank ", site_.rank, ": ", rank_.slots, " slots, but at most ", bounds_.activations,
               " are in use at once"),
           "the number was not counted from the schedule");
  }
  if (rank_.versions != bounds_.versions) {
    refuse(plan_,
           cat("rank ", site_.rank, ": ", rank_.versions, " versions, but at most ",
               bounds_.versions, " are needed at once"),
           "an extra version in the plan");
  }
}

}  // namespace

RankBounds check_rank(const ActionIndex& action_index, int rank) {
  return Walk(action_index, rank).run();
}

}  // namespace tutti::training::pipeline
