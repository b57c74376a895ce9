#include "collectives/one_sided/window_state.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "transport/paths/paths.h"

namespace tutti {

using one_sided::Channel;
using one_sided::OwnPart;
using one_sided::PartControl;
using one_sided::PartPlace;
using one_sided::SharedPart;

namespace {

// Grace period for accesses in progress when the window failed.
constexpr std::chrono::seconds kPatience{2};
// Time spent on one channel before the other channels are checked.
constexpr std::chrono::milliseconds kTurn{1};
constexpr std::chrono::milliseconds kLookAgain{50};

}  // namespace

Window::State::State(Communicator& world, std::span<std::byte> memory, std::shared_ptr<void> owner,
                     Members members)
    : rank_(world.rank()),
      owner_(std::move(owner)),
      links_(static_cast<size_t>(world.size())),
      process_(::getpid()),
      together_(members == Members::end_together) {
  try {
    share(world, memory);
    open_channels(world, members);
    world.barrier();  // waits until every rank serves requests
  } catch (...) {
    shut_down();
    throw;
  }
}

// Exchanges the locations of the parts, and maps the parts of the ranks that share memory.
void Window::State::share(Communicator& world, std::span<std::byte> memory) {
  const int ranks = world.size();
  Paths* const paths = internal::paths_of(world);
  const Memory<std::byte> control = world.allocate<std::byte>(PartControl::bytes(ranks));
  PartPlace own{.bytes = memory.size(), .light_fences = join_asymmetric_fences() ? 1U : 0U};
  if (paths != nullptr && !memory.empty()) {
    own.data = paths->place_of(memory).value_or(PartPlace::kNone);
    own.control =
        paths->place_of({control.get(), PartControl::bytes(ranks)}).value_or(PartPlace::kNone);
  }
  std::vector<PartPlace> places(links_.size());
  constexpr uint64_t kWords = sizeof(PartPlace) / sizeof(uint64_t);
  world.all_gather({&own, kWords, DType::u64}, {places.data(), kWords * places.size(), DType::u64});
  const bool light =
      std::ranges::all_of(places, [](const PartPlace& place) { return place.light_fences == 1; });
  for (int rank = 0; rank < ranks; ++rank) {
    Link& to = links_[static_cast<size_t>(rank)];
    const PartPlace& place = places[static_cast<size_t>(rank)];
    to.bytes = place.bytes;
    if (rank == rank_) continue;
    reached_by_messages_ |= !own.is_shared() || !paths->is_near(rank);
    if (!place.is_shared() || !paths->is_near(rank)) continue;
    to.part = SharedPart(*paths, place, ranks, rank_, light);
  }
  own_ = std::make_shared<OwnPart>(
      memory, own.is_shared() ? SharedPart(memory, control, rank_, light) : SharedPart(),
      [this](int holder) { return has_died(holder); });
}

// Opens one channel for all ranks, or one per other rank. Two ranks at a time create such a
// channel; all ranks follow the same order of pairs.
void Window::State::open_channels(Communicator& world, Members members) {
  const auto add = [this](Communicator requests, Communicator replies, int source) {
    channels_.push_back(
        std::make_shared<Channel>(std::move(requests), std::move(replies), source, own_));
    return channels_.back();
  };
  if (members == Members::end_together) {
    const std::shared_ptr<Channel> all = add(world.duplicate(), world.duplicate(), kAnySource);
    for (int rank = 0; rank < size(); ++rank) {
      links_[static_cast<size_t>(rank)].channel = all;
      links_[static_cast<size_t>(rank)].there = rank;
    }
  } else {
    constexpr int kRequests = kLargestTag - 1;
    constexpr int kReplies = kLargestTag;
    for (int other = 0; other < size(); ++other) {
      if (other == rank_) continue;
      const std::array pair = {std::min(rank_, other), std::max(rank_, other)};
      Link& to = links_[static_cast<size_t>(other)];
      to.there = other > rank_ ? 1 : 0;
      to.channel = add(world.create(pair, kRequests), world.create(pair, kReplies), to.there);
    }
  }
  for (const std::shared_ptr<Channel>& channel : channels_) channel->serve();
}

Window::State::~State() {
  if (::getpid() == process_) shut_down();
}

void Window::State::shut_down() {
  // Dead ranks are not waited for. (With end_together one death fails all channels, and it is not
  // known which rank died, so the time limit applies to every rank.)
  std::vector<bool> dead;
  for (const Link& to : links_) dead.push_back(to.channel != nullptr && to.channel->failed());
  for (const std::shared_ptr<Channel>& channel : channels_) {
    channel->stop();
    if (!together_ && !freed_ && !channel->failed()) {
      channel->end(cat("rank ", rank_, " has freed its part of the window"));
    }
  }
  if (own_ == nullptr || !own_->shared()) return;
  std::optional<Deadline> end;
  const bool is_empty = own_->shared().close(size(), [&](int rank) {
    const bool may_be_dead = together_ ? channels_.empty() || channels_.front()->failed()
                                       : dead[static_cast<size_t>(rank)];
    if (may_be_dead && !end) end = Deadline::after(kPatience);
    return may_be_dead && end->passed();
  });
  links_.clear();
  SharedPart::free_when_unused(own_->shared(), is_empty ? nullptr : owner_);
}

void Window::State::refuse_range(int rank, uint64_t offset, uint64_t bytes) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::invalid_argument, cat("there is no rank ", rank),
                {.where = "one-sided call", .remedy = cat("use a rank from 0 to ", size() - 1)});
  }
  throw Error(ErrorCode::invalid_argument,
              cat(bytes, " bytes at offset ", offset, " are outside the window of rank ", rank,
                  ", which has ", bytes_of(rank), " bytes"),
              {.where = "one-sided call", .remedy = "pass offsets in bytes"});
}

void Window::State::refuse_access(int rank) const {
  link(rank).channel->check();
  throw Error(ErrorCode::aborted, cat("rank ", rank, " has freed its part of the window"),
              {.where = "one-sided call",
               .cause = "its Window was destroyed",
               .remedy = "free a window on all ranks with free()",
               .rank = rank});
}

bool Window::State::has_died(int holder) const {
  if (together_) channels_.front()->check();
  return is_gone(holder);
}

void Window::State::make_progress() {
  if (together_) {
    channels_.front()->current().poll();
    return;
  }
  for (const std::shared_ptr<Channel>& channel : channels_) {
    try {
      channel->current().poll();
      return;
    } catch (const Error&) {  // that rank has died
    }
  }
}

void Window::State::send_added() {
  for (const std::shared_ptr<Channel>& channel : channels_) {
    if (!channel->failed()) channel->send_added();
  }
}

// Waits on one channel, which progresses all calls of the job, and then checks the others.
void Window::State::wait_for_requests(std::vector<std::optional<Work>>& handles) {
  // A single rank has no channels.
  if (channels_.empty()) return std::this_thread::sleep_for(kTurn);
  handles.resize(channels_.size());
  if (together_) return channels_[0]->wait_for_request(handles[0], kLookAgain);
  for (size_t i = 0; i < channels_.size(); ++i) {
    try {
      return channels_[i]->wait_for_request(handles[i], kTurn);
    } catch (const Error&) {  // that rank has died, or dies meanwhile
    }
  }
  throw Error(ErrorCode::rank_died, "all other ranks of the window have died or left");
}

void Window::State::abort(const std::string& reason) {
  for (const std::shared_ptr<Channel>& channel : channels_) channel->end(reason);
}

bool Window::State::is_gone(int rank) const {
  return !together_ && rank != rank_ && link(rank).channel->failed();
}

void Window::State::meet() {
  if (together_) return channels_.front()->replies().barrier();
  ++fences_;
  for (const Link& to : links_) {
    if (to.channel == nullptr || to.channel->failed()) continue;
    try {
      to.channel->send(to.there, {.kind = one_sided::Kind::arrive});
    } catch (const Error&) {  // that rank has died
    }
  }
  for (const std::shared_ptr<Channel>& channel : channels_) {
    std::optional<Work> handle;
    while (channel->arrivals() < fences_ && !channel->failed()) {
      try {
        channel->wait_for_request(handle, kTurn);
      } catch (const Error&) {  // failed() reports it
      }
    }
  }
}

}  // namespace tutti
