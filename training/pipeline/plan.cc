#include "training/pipeline/plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "training/pipeline/action_index.h"

namespace tutti::training::pipeline {
namespace {

// Values assigned to entries. `slots` and `versions` are indexed by Schedule::cell.
struct Assigned {
  std::vector<int> slots;
  std::vector<int> versions;
  // by position in the rank's row: version that is created after the entry, or 0
  std::vector<int> update_after;
};

struct Receive {
  int before = 0;  // position of the entry before which the receive is posted
  Site sent;
  Entry entry;
};

// Assigns the lowest free slot to each micro-batch.
int assign_slots(const Schedule& schedule, int rank, bool trains, std::vector<int>& slots) {
  std::vector<bool> taken;
  for (const Entry& entry : schedule.table[index(rank)]) {
    int& slot = slots[schedule.cell(entry)];
    if (entry.kind == Kind::forward) {
      const auto free = std::ranges::find(taken, false);
      slot = static_cast<int>(free - taken.begin());
      if (free == taken.end()) taken.push_back(false);
      taken[index(slot)] = true;
    }
    if (makes_weight_gradient(entry) || !trains) taken[index(slot)] = false;
  }
  return static_cast<int>(taken.size());
}

// Assigns versions by the rules of `Updates`. The first micro-batch of update u has index u *
// accumulated.
void assign_versions(const Schedule& schedule, int rank, Assigned& assigned) {
  const std::vector<Entry>& entries = schedule.table[index(rank)];
  assigned.update_after.assign(entries.size(), 0);
  if (schedule.updates == Updates::flushed) return;
  std::vector<int> missing(index(schedule.micro_batches / schedule.accumulated), 0);
  const auto update_of = [&](const Entry& entry) {
    return entry.micro_batch / schedule.accumulated;
  };
  for (const Entry& entry : entries)
    missing[index(update_of(entry))] += makes_weight_gradient(entry);
  int newest = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int update = update_of(entries[i]);
    if (entries[i].kind == Kind::forward) {
      const int version = schedule.updates == Updates::latest ? newest : std::max(0, update - 1);
      assigned.versions[schedule.cell(entries[i])] = version;
    }
    if (makes_weight_gradient(entries[i]) && --missing[index(update)] == 0) {
      newest = update + 1;
      assigned.update_after[i] = newest;
    }
  }
}

int versions_at_once(const Schedule& schedule, int rank, const Assigned& assigned) {
  const std::vector<Entry>& entries = schedule.table[index(rank)];
  // by version: position of its last use
  std::vector<size_t> last_use(index(schedule.micro_batches) + 1, 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    last_use[index(assigned.versions[schedule.cell(entries[i])])] = i;
  }
  int most = 1;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int made = assigned.update_after[i];
    if (made == 0) continue;
    const auto kept = std::count_if(last_use.begin(), last_use.begin() + made,
                                    [i](size_t last) { return last > i; });
    most = std::max(most, static_cast<int>(kept) + 1);
  }
  return most;
}

// Returns a rank's receives in the order in which they are posted.
std::vector<Receive> receives_of(const Schedule& schedule, const Places& places, int rank) {
  const std::vector<Entry>& entries = schedule.table[index(rank)];
  std::vector<Receive> receives;
  for (int i = 0; index(i) < entries.size(); ++i) {
    const Entry& entry = entries[index(i)];
    if (!needs_input(schedule, entry)) continue;
    const Entry input = input_of(entry);
    const size_t at = schedule.cell(input);
    const Site sent = input.kind == Kind::forward ? places.forward[at] : places.backward[at];
    if (sent.rank != rank) receives.push_back({std::max(0, i - 1), sent, entry});
  }
  // The receives of a channel are posted in the order in which their messages are sent: no receive
  // is posted after the receive of a later message.
  std::ranges::sort(receives, {}, [](const Receive& receive) {
    return std::tuple(receive.sent.rank, receive.sent.index);
  });
  for (size_t i = receives.size(); i-- > 1;) {
    if (receives[i - 1].sent.rank != receives[i].sent.rank) continue;
    receives[i - 1].before = std::min(receives[i - 1].before, receives[i].before);
  }
  std::ranges::stable_sort(receives, {}, &Receive::before);
  return receives;
}

// Returns the rank that needs the result of `entry`, or -1.
int consumer_of(const Schedule& schedule, const Places& places, const Entry& entry) {
  Entry next = entry;
  next.chunk += entry.kind == Kind::forward ? 1 : -1;
  if (entry.kind == Kind::backward_weight || next.chunk < 0 || next.chunk >= schedule.chunks) {
    return -1;
  }
  return places.forward[schedule.cell(next)].rank;
}

std::vector<Action> actions_of(const Schedule& schedule, const Places& places, int rank,
                               const Assigned& assigned) {
  const std::vector<Entry>& entries = schedule.table[index(rank)];
  const std::vector<Receive> receives = receives_of(schedule, places, rank);
  std::vector<Action> actions;
  actions.reserve(2 * entries.size() + receives.size());
  auto receive = receives.begin();
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const size_t at = schedule.cell(entry);
    for (; receive != receives.end() && index(receive->before) == i; ++receive) {
      const int slot = assigned.slots[schedule.cell(receive->entry)];
      actions.push_back({Action::Kind::receive, receive->entry, receive->sent.rank, slot, 0});
    }
    actions.push_back(
        {Action::Kind::compute, entry, -1, assigned.slots[at], assigned.versions[at]});
    const int consumer = consumer_of(schedule, places, entry);
    if (consumer >= 0 && consumer != rank) {
      actions.push_back({Action::Kind::send, entry, consumer, assigned.slots[at], 0});
    }
    if (assigned.update_after[i] > 0) {
      actions.push_back({Action::Kind::update, entry, -1, 0, assigned.update_after[i]});
    }
  }
  return actions;
}

// Determines the holders of chunks from the ranks of entries.
void place_chunks(const Places& places, Plan& plan) {
  plan.holders.resize(index(plan.schedule.chunks));
  for (const Site& place : places.forward) plan.forward_rank.push_back(place.rank);
  for (int c = 0; c < plan.schedule.chunks; ++c) {
    std::vector<int>& holders = plan.holders[index(c)];
    for (int m = 0; m < plan.schedule.micro_batches; ++m) holders.push_back(plan.rank_of(m, c));
    std::ranges::sort(holders);
    const auto repeated = std::ranges::unique(holders);
    holders.erase(repeated.begin(), repeated.end());
    for (const int rank : holders) plan.ranks[index(rank)].chunks.push_back(c);
  }
}

}  // namespace

bool needs_input(const Schedule& schedule, const Entry& entry) {
  if (entry.kind == Kind::backward_weight) return false;
  return entry.kind == Kind::forward ? entry.chunk > 0 : entry.chunk + 1 < schedule.chunks;
}

Entry input_of(const Entry& entry) {
  Entry input = entry;
  input.chunk += entry.kind == Kind::forward ? -1 : 1;
  return input;
}

Plan make_plan(const Schedule& schedule) {
  const Places places = find_places(schedule);
  Plan plan{.schedule = schedule,
            .ranks = std::vector<RankPlan>(index(schedule.ranks)),
            .holders = {},
            .forward_rank = {}};
  place_chunks(places, plan);
  Assigned assigned;
  assigned.slots.resize(places.forward.size());
  assigned.versions.resize(places.forward.size());
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    RankPlan& its = plan.ranks[index(rank)];
    its.slots = assign_slots(schedule, rank, places.trains, assigned.slots);
    if (places.trains) {
      assign_versions(schedule, rank, assigned);
    } else {
      assigned.update_after.assign(schedule.table[index(rank)].size(), 0);
    }
    its.versions = versions_at_once(schedule, rank, assigned);
    its.actions = actions_of(schedule, places, rank, assigned);
  }
  return plan;
}

}  // namespace tutti::training::pipeline
