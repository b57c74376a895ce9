#include "training/pipeline/plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

// A place in the table.
struct Place {
  int rank = -1;
  int position = -1;
  bool operator==(const Place&) const = default;
};

// Where the table computes what, by micro-batch and chunk. A whole backward stands in both of its.
struct Places {
  std::vector<Place> forward;
  std::vector<Place> backward;  // of inputs
  std::vector<Place> weight;    // backward of weights
};

// What one rank's entries are given, by micro-batch and chunk.
struct Assigned {
  std::vector<int> slots;
  std::vector<int> versions;
  std::vector<int> update_after;  // by position: the version that is made after it, or 0
};

struct Receive {
  int before = 0;  // the position before which it is posted
  Place sent;
  Entry entry;
};

size_t cell(const Schedule& schedule, const Entry& entry) {
  return static_cast<size_t>(entry.micro_batch) * static_cast<size_t>(schedule.chunks) +
         static_cast<size_t>(entry.chunk);
}

size_t index(int i) { return static_cast<size_t>(i); }

[[noreturn]] void refuse(const Schedule& schedule, const std::string& what,
                         const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, what,
              {.where = cat("schedule ", schedule.name),
               .cause = cause,
               .remedy = "correct the function that makes this table"});
}

std::string text(const Schedule& schedule, const Place& place) {
  const Entry& entry = schedule.table[index(place.rank)][index(place.position)];
  return cat("rank ", place.rank, ", entry ", place.position, " (",
             to_string(entry, schedule.chunks > schedule.ranks), ")");
}

void check_sizes(const Schedule& s) {
  if (s.ranks < 1 || s.micro_batches < 1 || s.chunks < 1 || s.table.size() != index(s.ranks)) {
    refuse(s,
           cat("a table of ", s.table.size(), " ranks for ", s.ranks, " ranks, ", s.micro_batches,
               " micro-batches and ", s.chunks, " chunks"),
           "there is at least one of each, and one row for each rank");
  }
  if (s.updates == Updates::flushed) return;
  if (s.accumulated < 1 || s.micro_batches % s.accumulated != 0) {
    refuse(s,
           cat("an update after every ", s.accumulated, " of ", s.micro_batches, " micro-batches"),
           "the micro-batches of an update must divide those of the table");
  }
}

void record(const Schedule& schedule, std::vector<Place>& places, const Place& place) {
  const Entry& entry = schedule.table[index(place.rank)][index(place.position)];
  Place& known = places[cell(schedule, entry)];
  if (known.rank >= 0) {
    refuse(schedule,
           cat(text(schedule, place), ": ", describe(entry), " was computed already, at ",
               text(schedule, known)),
           "a doubled entry, or one with the wrong micro-batch or chunk");
  }
  known = place;
}

// Every entry once.
Places find_places(const Schedule& schedule) {
  const size_t cells = index(schedule.micro_batches) * index(schedule.chunks);
  Places places = {std::vector<Place>(cells), std::vector<Place>(cells), std::vector<Place>(cells)};
  for (Place place = {0, 0}; place.rank < schedule.ranks; ++place.rank) {
    const std::vector<Entry>& entries = schedule.table[index(place.rank)];
    for (place.position = 0; index(place.position) < entries.size(); ++place.position) {
      const Entry& entry = entries[index(place.position)];
      if (entry.micro_batch < 0 || entry.micro_batch >= schedule.micro_batches || entry.chunk < 0 ||
          entry.chunk >= schedule.chunks) {
        refuse(schedule, cat(text(schedule, place), ": there is no ", describe(entry)),
               cat("the schedule has ", schedule.micro_batches, " micro-batches and ",
                   schedule.chunks, " chunks"));
      }
      if (entry.kind == Kind::forward) record(schedule, places.forward, place);
      if (entry.kind == Kind::backward || entry.kind == Kind::backward_input) {
        record(schedule, places.backward, place);
      }
      if (makes_weight_gradient(entry)) record(schedule, places.weight, place);
    }
  }
  return places;
}

// `later` is there, on the rank of `earlier` and after it.
void check_follows(const Schedule& schedule, const Place& earlier, const Place& later,
                   const Entry& wanted) {
  if (later.rank < 0) {
    refuse(schedule,
           cat(text(schedule, earlier), ": no rank computes the ", describe(wanted),
               " that belongs to it"),
           "an entry was left out");
  }
  if (later.rank != earlier.rank) {
    refuse(schedule,
           cat(text(schedule, later), ": what it needs is kept on another rank, by ",
               text(schedule, earlier)),
           "a micro-batch goes forward and backward through a chunk on one rank");
  }
  if (later.position < earlier.position) {
    refuse(schedule,
           cat(text(schedule, later), ": comes before what it needs, ", text(schedule, earlier)),
           "two entries in the wrong order");
  }
}

// Every micro-batch once through every chunk, in each direction.
void check_complete(const Schedule& schedule, const Places& places) {
  const auto is_there = [](const Place& place) { return place.rank >= 0; };
  const bool trains = std::ranges::any_of(places.backward, is_there) ||
                      std::ranges::any_of(places.weight, is_there);
  for (int m = 0; m < schedule.micro_batches; ++m) {
    for (int c = 0; c < schedule.chunks; ++c) {
      const size_t at = cell(schedule, {.micro_batch = m, .chunk = c});
      if (!is_there(places.forward[at])) {
        refuse(schedule, cat("no rank computes the ", describe({Kind::forward, m, c})),
               "an entry was left out");
      }
      if (!trains) continue;
      check_follows(schedule, places.forward[at], places.backward[at], {Kind::backward, m, c});
      if (places.weight[at] == places.backward[at]) continue;
      check_follows(schedule, places.backward[at], places.weight[at],
                    {Kind::backward_weight, m, c});
    }
  }
}

// Each micro-batch takes the lowest slot that is free.
int assign_slots(const Schedule& schedule, int rank, bool trains, std::vector<int>& slots) {
  std::vector<bool> taken;
  for (const Entry& entry : schedule.table[index(rank)]) {
    int& slot = slots[cell(schedule, entry)];
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

// The rules of `Updates`. Micro-batches of update u are u * accumulated and those that follow.
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
      assigned.versions[cell(schedule, entries[i])] = version;
    }
    if (makes_weight_gradient(entries[i]) && --missing[index(update)] == 0) {
      newest = update + 1;
      assigned.update_after[i] = newest;
    }
  }
}

int versions_at_once(const Schedule& schedule, int rank, const Assigned& assigned) {
  const std::vector<Entry>& entries = schedule.table[index(rank)];
  std::vector<size_t> last_use(index(schedule.micro_batches) + 1, 0);  // by version
  for (size_t i = 0; i < entries.size(); ++i) {
    last_use[index(assigned.versions[cell(schedule, entries[i])])] = i;
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

// The receives of a rank in the order in which they are posted.
std::vector<Receive> receives_of(const Schedule& schedule, const Places& places, int rank) {
  const std::vector<Entry>& entries = schedule.table[index(rank)];
  std::vector<Receive> receives;
  for (int i = 0; index(i) < entries.size(); ++i) {
    const Entry& entry = entries[index(i)];
    if (!needs_input(schedule, entry)) continue;
    const Entry input = input_of(entry);
    const size_t at = cell(schedule, input);
    const Place sent = input.kind == Kind::forward ? places.forward[at] : places.backward[at];
    if (sent.rank != rank) receives.push_back({std::max(0, i - 1), sent, entry});
  }
  // In the order of the channels, none is posted after one that is sent later.
  std::ranges::sort(receives, {}, [](const Receive& receive) {
    return std::tuple(receive.sent.rank, receive.sent.position);
  });
  for (size_t i = receives.size(); i-- > 1;) {
    if (receives[i - 1].sent.rank != receives[i].sent.rank) continue;
    receives[i - 1].before = std::min(receives[i - 1].before, receives[i].before);
  }
  std::ranges::stable_sort(receives, {}, &Receive::before);
  return receives;
}

// Who needs what `entry` makes: a rank, or -1.
int consumer_of(const Schedule& schedule, const Places& places, const Entry& entry) {
  Entry next = entry;
  next.chunk += entry.kind == Kind::forward ? 1 : -1;
  if (entry.kind == Kind::backward_weight || next.chunk < 0 || next.chunk >= schedule.chunks) {
    return -1;
  }
  return places.forward[cell(schedule, next)].rank;
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
    const size_t at = cell(schedule, entry);
    for (; receive != receives.end() && index(receive->before) == i; ++receive) {
      const int slot = assigned.slots[cell(schedule, receive->entry)];
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

// Which chunk lies on which ranks: by who computes what.
void place_chunks(const Places& places, Plan& plan) {
  plan.holders.resize(index(plan.schedule.chunks));
  for (const Place& place : places.forward) plan.forward_rank.push_back(place.rank);
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
  check_sizes(schedule);
  const Places places = find_places(schedule);
  check_complete(schedule, places);
  Plan plan{.schedule = schedule,
            .ranks = std::vector<RankPlan>(index(schedule.ranks)),
            .holders = {},
            .forward_rank = {}};
  place_chunks(places, plan);
  const bool trains = places.backward.front().rank >= 0;
  Assigned assigned;
  assigned.slots.resize(places.forward.size());
  assigned.versions.resize(places.forward.size());
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    RankPlan& its = plan.ranks[index(rank)];
    its.slots = assign_slots(schedule, rank, trains, assigned.slots);
    if (trains) {
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
