#include "collectives/simulate/fair_sharing.h"

#include <algorithm>
#include <limits>

namespace tutti {

namespace {

// Relative tolerance: rates that differ by less count as equal, because sums of rates are rounded.
constexpr double kNearly = 1e-9;

bool full(double used, double capacity) { return used >= capacity * (1 - kNearly); }

}  // namespace

FairSharing::FairSharing(std::vector<double> capacities) : links_(capacities.size()) {
  for (size_t i = 0; i < links_.size(); ++i) links_[i].capacity = capacities[i];
}

FairSharing::Flow FairSharing::begin(std::span<const int> links) {
  if (free_.empty()) {
    free_.push_back(static_cast<Flow>(flows_.size()));
    flows_.emplace_back();
  }
  const Flow flow = free_.back();
  free_.pop_back();
  State& state = flows_[flow];
  state.uses.clear();
  state.rate = 0;
  for (const int number : links) {
    Link& link = links_[static_cast<size_t>(number)];
    const auto use = static_cast<uint32_t>(state.uses.size());
    state.uses.push_back({static_cast<uint32_t>(number), static_cast<uint32_t>(link.flows.size())});
    link.flows.push_back({flow, use});
  }
  begun_.push_back(flow);
  return flow;
}

void FairSharing::end(Flow flow) {
  State& state = flows_[flow];
  --links_[state.bottleneck].bottlenecks;
  for (const Use& use : state.uses) {
    Link& link = links_[use.link];
    const bool was_full = full(link.used, link.capacity);
    const Place moved = link.flows.back();
    link.flows[use.place] = moved;
    flows_[moved.flow].uses[moved.use].place = use.place;
    link.flows.pop_back();
    link.used = link.flows.empty() ? 0 : link.used - state.rate;
    if (was_full && !link.is_relieved && link.bottlenecks > 0) {
      link.is_relieved = true;
      relieved_.push_back(use.link);
    }
  }
  free_.push_back(flow);
}

// Gives a flow its rate if the flow affects no other: its narrowest link is used by no other flow,
// and its other links have enough bandwidth left.
bool FairSharing::take_alone(Flow flow) {
  State& state = flows_[flow];
  double rate = std::numeric_limits<double>::infinity();
  for (const Use& use : state.uses) {
    if (links_[use.link].capacity >= rate) continue;
    rate = links_[use.link].capacity;
    state.bottleneck = use.link;
  }
  size_t taken = 0;
  for (; taken < state.uses.size(); ++taken) {
    Link& link = links_[state.uses[taken].link];
    if (link.used + rate > link.capacity * (1 + kNearly)) break;
    link.used += rate;
  }
  if (taken == state.uses.size()) {
    ++links_[state.bottleneck].bottlenecks;
    state.rate = rate;
    return true;
  }
  while (taken-- > 0) links_[state.uses[taken].link].used -= rate;
  return false;
}

void FairSharing::touch(uint32_t number) {
  Link& link = links_[number];
  if (link.is_touched) return;
  link.is_touched = true;
  touched_.push_back(number);
}

void FairSharing::add_member(Flow flow) {
  State& state = flows_[flow];
  state.is_member = true;
  state.rate_before = state.rate;
  members_.push_back(flow);
  if (state.rate > 0) --links_[state.bottleneck].bottlenecks;
  for (const Use& use : state.uses) {
    links_[use.link].used -= state.rate;
    touch(use.link);
  }
}

void FairSharing::add_bottlenecked(uint32_t number) {
  for (const Place& place : links_[number].flows) {
    const State& state = flows_[place.flow];
    if (!state.is_member && state.rate > 0 && state.bottleneck == number) add_member(place.flow);
  }
}

void FairSharing::find_rates() {
  std::vector<Flow> others;
  for (const Flow flow : begun_) {
    if (take_alone(flow)) {
      alone_.push_back(flow);
    } else {
      others.push_back(flow);
    }
  }
  begun_.clear();
  for (const Flow flow : others) add_member(flow);
  for (const uint32_t link : relieved_) {
    links_[link].is_relieved = false;
    add_bottlenecked(link);
  }
  relieved_.clear();
  if (members_.empty()) return;
  do {
    fill();
  } while (add_reached());
  for (const Flow flow : members_) {
    const State& state = flows_[flow];
    ++links_[state.bottleneck].bottlenecks;
    for (const Use& use : state.uses) links_[use.link].used += state.rate;
  }
}

// Computes the rates by water filling: the link with the smallest fair share saturates first.
void FairSharing::fill() {
  open_.clear();
  for (const uint32_t number : touched_) {
    Link& link = links_[number];
    link.waiting = 0;
    link.left = std::max(0.0, link.capacity - link.used);
    link.quickest = 0;
    link.taken = 0;
    open_.push_back(number);
  }
  for (const Flow flow : members_) {
    flows_[flow].has_rate = false;
    for (const Use& use : flows_[flow].uses) ++links_[use.link].waiting;
    work_ += static_cast<int64_t>(flows_[flow].uses.size());
  }
  const auto share = [&](uint32_t link) { return links_[link].left / links_[link].waiting; };
  while (true) {
    std::erase_if(open_, [&](uint32_t link) { return links_[link].waiting == 0; });
    if (open_.empty()) return;
    work_ += static_cast<int64_t>(open_.size());
    double least = std::numeric_limits<double>::infinity();
    for (const uint32_t link : open_) least = std::min(least, share(link));
    for (const uint32_t link : open_) {
      const bool next = links_[link].waiting > 0 && share(link) <= least * (1 + kNearly * 1e-3);
      if (next) fill_link(link, least);
    }
  }
}

void FairSharing::fill_link(uint32_t number, double share) {
  for (const Place& place : links_[number].flows) {
    State& state = flows_[place.flow];
    if (!state.is_member || state.has_rate) continue;
    state.has_rate = true;
    state.rate = share;
    state.bottleneck = number;
    for (const Use& use : state.uses) {
      Link& link = links_[use.link];
      --link.waiting;
      link.left = std::max(0.0, link.left - share);
      link.taken += share;
      link.quickest = std::max(link.quickest, share);
    }
  }
}

// Adds as members the flows that their bottleneck no longer limits, and flows that are faster than
// a member on the member's bottleneck. Returns true if any were added.
bool FairSharing::add_reached() {
  const size_t before = members_.size();
  const size_t links = touched_.size();
  for (size_t i = 0; i < links; ++i) add_reached(links_[touched_[i]], touched_[i]);
  return members_.size() > before;
}

bool FairSharing::add_reached(Link& link, uint32_t number) {
  double slowest_here =
      // Rate of the slowest member whose bottleneck is this link.
      std::numeric_limits<double>::infinity();
  for (const Place& place : link.flows) {
    const State& state = flows_[place.flow];
    if (state.is_member && state.has_rate && state.bottleneck == number) {
      slowest_here = std::min(slowest_here, state.rate);
    }
  }
  if (link.bottlenecks == 0 && slowest_here == std::numeric_limits<double>::infinity())
    return false;
  const bool relieved = !full(link.used + link.taken, link.capacity);
  const double quickest = link.quickest;
  bool added = false;
  for (const Place& place : link.flows) {
    const State& state = flows_[place.flow];
    if (state.is_member) continue;
    const bool own = state.bottleneck == number;
    const bool reached = state.rate > slowest_here * (1 + kNearly) ||
                         (own && (relieved || state.rate < quickest * (1 - kNearly)));
    if (!reached) continue;
    flows_[place.flow].has_rate = false;
    add_member(place.flow);
    added = true;
  }
  return added;
}

void FairSharing::forget_members() {
  for (const Flow flow : members_) flows_[flow].is_member = false;
  for (const uint32_t link : touched_) links_[link].is_touched = false;
  members_.clear();
  touched_.clear();
}

}  // namespace tutti
