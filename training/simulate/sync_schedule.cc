#include "training/simulate/sync_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "collectives/simulate/joint_schedule.h"
#include "topology/layout.h"
#include "training/parallel/averaging/diloco.h"
#include "training/parallel/averaging/peers.h"

namespace tutti::training {

namespace {

using Step = JointSchedule::Step;

constexpr Step kNone = -1;

size_t index(int64_t i) { return static_cast<size_t>(i); }

enum class Pattern { all_reduces, exchanges, servers };

Pattern pattern_of(const SyncOptions& way) {
  switch (way.kind) {
    case SyncKind::allreduce:
    case SyncKind::local:
    case SyncKind::diloco:
    case SyncKind::easgd:
    case SyncKind::fedavg:
    case SyncKind::fedprox:
    case SyncKind::fedadam:
      return Pattern::all_reduces;
    case SyncKind::gossip:
      return way.graph == GossipGraph::complete ? Pattern::all_reduces : Pattern::exchanges;
    case SyncKind::push_sum:
    case SyncKind::async_gossip:
      return Pattern::exchanges;
    case SyncKind::server:
    case SyncKind::stale:
    case SyncKind::async:
      return Pattern::servers;
  }
  throw Error(ErrorCode::unsupported, cat(text_of(way), " cannot be simulated"));
}

// An all-reduce that begins after an update. Its mean is used from the end of update `used_at` on.
struct Sum {
  double bytes = 0;
  int64_t used_at = 0;
};

class Builder {
 public:
  Builder(const SyncWork& work, const std::vector<int64_t>& steps, const std::vector<Place>& places,
          int64_t most_steps)
      : work_(work),
        way_(work.way),
        pattern_(pattern_of(work.way)),
        steps_(steps),
        ranks_(work.ranks()),
        roles_(work.roles()),
        most_steps_(most_steps),
        joint_(ranks_),
        last_(index(ranks_), kNone),
        ends_(index(roles_.workers())) {
    if (pattern_ != Pattern::all_reduces || ranks_ == 1) return;
    all_ranks_.resize(index(ranks_));
    std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
    const Shape shape{.ranks = ranks_, .layout = tutti::Layout::of(places)};
    sum_ = make_schedule(*work.all_reduce, shape, {.most_steps = most_steps});
  }

  SyncSchedule build() {
    refuse_if_too_long();
    if (pattern_ == Pattern::servers) {
      add_servers();
    } else {
      for (int64_t update = 1; update <= work_.updates; ++update) add_update(update);
    }
    SyncSchedule made{.schedule = joint_.take(), .ends = std::move(ends_)};
    for (size_t worker = 0; worker < made.ends.size(); ++worker) {
      for (int32_t& step : made.ends[worker]) step += made.schedule.first_step[worker];
    }
    return made;
  }

 private:
  // Returns the all-reduce that follows an update, if there is one and its mean is used in this or
  // a later update.
  std::optional<Sum> sum_after(int64_t update) const {
    if (ranks_ == 1) return std::nullopt;
    const Sum all{.bytes = work_.bytes, .used_at = update};
    if (way_.kind != SyncKind::diloco) {
      const int64_t local = update - way_.local_after;
      if (local > 0 && local % way_.every != 0) return std::nullopt;
      return all;
    }
    const Sum fragment{.bytes = work_.bytes / static_cast<double>(way_.fragments),
                       .used_at = update + way_.delay};
    if (!fragment_sent_at(way_, update) || fragment.used_at > work_.updates) return std::nullopt;
    return fragment;
  }

  void refuse_if_too_long() const {
    const auto updates = static_cast<double>(work_.updates);
    double count = 0;
    switch (pattern_) {
      case Pattern::all_reduces:
        count = updates * ranks_ + sums() * (sum_.steps() + 3.0 * ranks_);
        break;
      case Pattern::exchanges:
        count = updates * ranks_ * (way_.graph == GossipGraph::ring ? 7 : 4);
        break;
      case Pattern::servers:
        for (const int64_t steps : steps_) count += static_cast<double>(steps);
        count *= 2 + 4.0 * roles_.servers();
        break;
    }
    if (count <= static_cast<double>(most_steps_)) return;
    throw Error(ErrorCode::unsupported,
                cat(work_.updates, " updates by ", text_of(way_), " on ", ranks_,
                    " ranks have some ", static_cast<int64_t>(count), " steps to simulate"),
                {.cause = cat("the limit is ", most_steps_, " steps over all ranks"),
                 .remedy = "use fewer updates, ranks or servers"});
  }

  double sums() const {
    const auto updates = static_cast<double>(work_.updates);
    if (way_.kind == SyncKind::diloco) {
      return updates * static_cast<double>(way_.fragments) / static_cast<double>(way_.every);
    }
    const auto before = static_cast<double>(std::min(way_.local_after, work_.updates));
    return before + (updates - before) / static_cast<double>(way_.every);
  }

  // Makes `later` begin after `earlier` has ended; with kNone there is no constraint.
  void order(int32_t rank, Step earlier, Step later) {
    if (earlier != kNone) joint_.order(rank, earlier, later);
  }

  Step compute(int32_t rank) {
    const Step step = joint_.compute(rank, work_.step_us[index(rank)]);
    order(rank, std::exchange(last_[index(rank)], step), step);
    return step;
  }

  void add_update(int64_t update) {
    for (int32_t rank = 0; rank < ranks_; ++rank) compute(rank);
    if (pattern_ == Pattern::all_reduces) {
      average(update);
    } else if (way_.kind == SyncKind::async_gossip) {
      ask_others(update);
    } else if (way_.graph == GossipGraph::ring) {
      exchange_with_neighbours();
    } else if (way_.graph == GossipGraph::exponential) {
      exchange(exponential_targets(ranks_, update));
    } else if (way_.kind == SyncKind::push_sum) {
      exchange(random_targets(ranks_, work_.seed, update));
    } else {
      exchange(random_pairs(ranks_, work_.seed, update));
    }
    for (int32_t rank = 0; rank < ranks_; ++rank) ends_[index(rank)].push_back(last_[index(rank)]);
  }

  // Adds the sum that follows an update. At most one sum is in flight.
  void average(int64_t update) {
    if (const std::optional<Sum> sum = sum_after(update)) {
      const auto ends = joint_.collective(sum_, sum->bytes, all_ranks_);
      means_.clear();
      for (int32_t rank = 0; rank < ranks_; ++rank) {
        order(rank, last_[index(rank)], ends[index(rank)].first);
        means_.push_back(ends[index(rank)].second);
      }
      used_at_ = sum->used_at;
    }
    if (update != used_at_) return;
    for (int32_t rank = 0; rank < ranks_; ++rank) wait_for(rank, {means_[index(rank)]});
  }

  // Makes the rank's next step wait for `steps` as well.
  void wait_for(int32_t rank, const std::vector<Step>& steps) {
    const Step all = joint_.compute(rank, 0);
    order(rank, std::exchange(last_[index(rank)], all), all);
    for (const Step step : steps) joint_.order(rank, step, all);
  }

  // Adds messages in the order of Gossip: each rank sends to the right, then to the left.
  void exchange_with_neighbours() {
    std::vector<int> right, left;
    for (int rank = 0; rank < ranks_; ++rank) {
      right.push_back(right_of(rank, ranks_));
      left.push_back(left_of(rank, ranks_));
    }
    exchange(right);
    if (left != right) exchange(left);
  }

  // Adds the messages from each rank to its target, unless the target is the rank itself.
  void exchange(const std::vector<int>& targets) {
    std::vector<std::vector<Step>> awaited(index(ranks_));
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      const int32_t target = targets[index(rank)];
      if (target == rank) continue;
      const auto [sent, received] = joint_.message(rank, target, work_.bytes);
      order(rank, last_[index(rank)], sent);
      awaited[index(rank)].push_back(sent);
      awaited[index(target)].push_back(received);
    }
    for (int32_t rank = 0; rank < ranks_; ++rank) wait_for(rank, awaited[index(rank)]);
  }

  // Adds the messages of AdPsgd: even ranks send requests to odd ranks, which answer on receipt,
  // even while they compute.
  void ask_others(int64_t update) {
    for (int32_t asker = 0; ranks_ > 1 && asker < ranks_; asker += 2) {
      const int32_t answerer = random_answerer(ranks_, work_.seed, update, asker);
      const auto [asked, came] = joint_.message(asker, answerer, work_.bytes);
      const auto [answered, answer] = joint_.message(answerer, asker, work_.bytes);
      order(asker, last_[index(asker)], asked);
      joint_.order(answerer, came, answered);
      wait_for(asker, {answer});
    }
  }

  void add_servers() {
    const int64_t clocks = std::ranges::max(steps_);
    updates_.resize(index(roles_.servers()));
    for (int64_t clock = 0; clock < clocks; ++clock) {
      arrived_.assign(index(roles_.workers()), {});
      for (int32_t worker = 0; worker < roles_.workers(); ++worker) {
        if (clock < steps_[index(worker)]) push(worker);
      }
      if (way_.kind != SyncKind::async) update_servers();
      for (int32_t worker = 0; worker < roles_.workers(); ++worker) {
        if (clock < steps_[index(worker)]) answer(worker, clock);
      }
    }
  }

  // Computes a worker's gradients and sends each server its shard of them.
  void push(int32_t worker) {
    const Step computed = compute(worker);
    for (int32_t server = roles_.first_server(); server < ranks_; ++server) {
      Step step = computed;
      if (server != worker) {
        const auto [sent, received] = joint_.message(worker, server, shard_bytes());
        joint_.order(worker, computed, sent);
        step = received;
      }
      arrived_[index(worker)].push_back(step);
    }
  }

  // Adds an update, which begins once the gradients of all workers have arrived.
  void update_servers() {
    for (int32_t server = 0; server < roles_.servers(); ++server) {
      const int32_t rank = roles_.first_server() + server;
      const Step update = joint_.compute(rank, 0);
      for (const std::vector<Step>& steps : arrived_) {
        joint_.order(rank, steps[index(server)], update);
      }
      updates_[index(server)].push_back(update);
    }
  }

  // Returns the number of updates that a server must have made before it answers the gradients of a
  // clock: the updates up to this clock except the last `bound`, or, at the last clock, all
  // updates. With async, the server waits for none.
  int64_t version_needed(int64_t clock) const {
    if (way_.kind == SyncKind::async) return 0;
    return clock + 1 == work_.updates ? work_.updates : clock + 1 - way_.bound;
  }

  void answer(int32_t worker, int64_t clock) {
    const int64_t version = version_needed(clock);
    std::vector<Step> awaited;
    for (int32_t server = 0; server < roles_.servers(); ++server) {
      const int32_t rank = roles_.first_server() + server;
      const Step update = version > 0 ? updates_[index(server)][index(version - 1)] : kNone;
      if (rank == worker) {
        if (update != kNone) awaited.push_back(update);
        continue;
      }
      const auto [sent, received] = joint_.message(rank, worker, shard_bytes());
      joint_.order(rank, arrived_[index(worker)][index(server)], sent);
      order(rank, update, sent);
      awaited.push_back(received);
    }
    wait_for(worker, awaited);
    ends_[index(worker)].push_back(last_[index(worker)]);
  }

  double shard_bytes() const { return work_.bytes / roles_.servers(); }

  const SyncWork& work_;
  const SyncOptions& way_;
  Pattern pattern_;
  const std::vector<int64_t>& steps_;
  int32_t ranks_;
  Roles roles_;
  int64_t most_steps_;
  JointSchedule joint_;
  std::vector<Step> last_;               // by rank: the step that its next step follows
  std::vector<std::vector<Step>> ends_;  // by worker: ends of its training steps
  std::vector<int32_t> all_ranks_;
  Schedule sum_;             // sum over all ranks
  std::vector<Step> means_;  // by rank: the end of the sum in flight
  int64_t used_at_ = 0;
  // by worker and server: arrival of the gradients of the current clock
  std::vector<std::vector<Step>> arrived_;
  std::vector<std::vector<Step>> updates_;  // by server and clock: step of the update
};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
}

}  // namespace

SyncSchedule make_sync_schedule(const SyncWork& work, const std::vector<int64_t>& steps,
                                const std::vector<Place>& places, int64_t most_steps) {
  if (work.way.has_servers() && work.way.servers >= work.ranks()) {
    refuse(cat(text_of(work.way), " on ", work.ranks(), " ranks leaves no rank that computes"),
           "use more ranks or fewer servers");
  }
  if (work.updates < 1) refuse(cat(work.updates, " updates"), "use at least 1");
  if (!std::isfinite(work.bytes) || work.bytes < 0) {
    refuse(cat(work.bytes, " bytes of gradients"), "use a finite number of at least 0");
  }
  for (const double us : work.step_us) {
    if (!std::isfinite(us) || us < 0) {
      refuse(cat("a step of ", us, " us"), "use a finite time of at least 0");
    }
  }
  return Builder(work, steps, places, most_steps).build();
}

}  // namespace tutti::training
