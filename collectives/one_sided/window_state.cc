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
using one_sided::Header;
using one_sided::OwnPart;
using one_sided::PartControl;
using one_sided::PartPlace;
using one_sided::SharedPart;

namespace {

// Grace period for accesses in progress when the window failed.
constexpr std::chrono::seconds kPatience{2};
// Maximum time of one wait on a channel.
constexpr std::chrono::milliseconds kTurn{1};
constexpr std::chrono::milliseconds kLookAgain{50};

}  // namespace

Window::State::State(Communicator& world, std::span<std::byte> memory, std::shared_ptr<void> owner,
                     Members members)
    : rank_(world.rank()),
      size_(world.size()),
      owner_(std::move(owner)),
      links_(static_cast<size_t>(world.size())),
      process_(::getpid()),
      together_(members == Members::end_together) {
  try {
    share(world, memory);
    open_channels(world, members);
    expose(world);
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

// Opens one channel for all ranks, or one per other rank. A channel of two ranks is created by
// these two ranks, and each rank creates its channels in rank order of the peers.
void Window::State::open_channels(Communicator& world, Members members) {
  const auto add = [this](Communicator ranks, int source) {
    channels_.push_back(std::make_shared<Channel>(std::move(ranks), source, own_));
    return channels_.back();
  };
  if (members == Members::end_together) {
    const std::shared_ptr<Channel> all = add(world.duplicate(), kAnySource);
    for (int rank = 0; rank < size(); ++rank) {
      links_[static_cast<size_t>(rank)].channel = all;
      links_[static_cast<size_t>(rank)].there = rank;
    }
  } else {
    for (int other = 0; other < size(); ++other) {
      if (other == rank_) continue;
      const std::array pair = {std::min(rank_, other), std::max(rank_, other)};
      Link& to = links_[static_cast<size_t>(other)];
      to.there = other > rank_ ? 1 : 0;
      to.channel = add(world.create(pair, kLargestTag), to.there);
    }
  }
  for (const std::shared_ptr<Channel>& channel : channels_) channel->serve();
}

// Exchanges the keys of memory that fabrics may access. Only memory that the window owns is
// exposed, because if the window ends on this rank alone, the memory must outlive accesses in
// flight.
void Window::State::expose(Communicator& world) {
  Paths* const paths = internal::paths_of(world);
  if (paths == nullptr || paths->far() == PathClass::tcp) return;
  struct Key {
    uint64_t bytes = 0;
    std::array<char, ExposedMemory::kLongestKey> text = {};
  };
  Key own;
  if (owner_ != nullptr) exposed_ = paths->expose(own_->memory());
  if (exposed_ != nullptr) own.bytes = exposed_->key().copy(own.text.data(), own.text.size());
  std::vector<Key> keys(links_.size());
  world.all_gather({&own, sizeof(Key), DType::u8},
                   {keys.data(), sizeof(Key) * keys.size(), DType::u8});
  for (int rank = 0; rank < size(); ++rank) {
    const Key& key = keys[static_cast<size_t>(rank)];
    Link& to = links_[static_cast<size_t>(rank)];
    if (rank == rank_ || to.part || key.bytes == 0 || key.bytes > key.text.size()) continue;
    std::unique_ptr<RemoteMemory> memory = paths->reach(rank, {key.text.data(), key.bytes});
    if (memory == nullptr) continue;
    to.remote =
        std::make_unique<one_sided::RemotePart>(std::move(memory), rank, [this, &to](bool sleeps) {
          to.channel->check();
          if (!sleeps) return make_progress();
          std::optional<Work> handle;
          to.channel->wait_for_request(handle, kTurn);
        });
  }
}

void Window::State::Link::ask(const Header& header, void* answer, uint64_t bytes) const {
  if (remote == nullptr) return channel->ask(there, header, answer, bytes);
  remote->flush();
  const uint64_t messages = remote->messages();
  channel->ask(there, header, answer, bytes);
  remote->set_served(messages);
}

Window::State::~State() {
  if (::getpid() == process_) shut_down();
}

void Window::State::shut_down() {
  // Dead ranks are waited for only until a time limit. (With end_together one death fails all
  // channels, and it is not known which rank died, so the time limit applies to every rank.)
  std::vector<bool> dead;
  for (const Link& to : links_) dead.push_back(to.channel != nullptr && to.channel->failed());
  for (const std::shared_ptr<Channel>& channel : channels_) {
    channel->stop();
    if (!together_ && !freed_ && !channel->failed()) {
      channel->end(cat("rank ", rank_, " has freed its part of the window"));
    }
  }
  for (Link& to : links_) to.remote.reset();
  // A rank whose channel has failed did not flush, so its puts may still be in flight.
  const bool is_quiet = freed_ && (together_ || std::ranges::find(dead, true) == dead.end());
  if (exposed_ != nullptr && !is_quiet) exposed_->keep(owner_);
  exposed_.reset();
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
    } catch (const Error&) {  // the peer has died
    }
  }
}

void Window::State::send_added() {
  for (const std::shared_ptr<Channel>& channel : channels_) {
    if (!channel->failed()) channel->send_added();
  }
}

// Waits on the first channel that has not failed. The wait progresses all calls of the job.
void Window::State::wait_for_requests(std::vector<std::optional<Work>>& handles) {
  // With Members::may_die, a single rank has no channels.
  if (channels_.empty()) return std::this_thread::sleep_for(kTurn);
  handles.resize(channels_.size());
  if (together_) return channels_[0]->wait_for_request(handles[0], kLookAgain);
  for (size_t i = 0; i < channels_.size(); ++i) {
    try {
      return channels_[i]->wait_for_request(handles[i], kTurn);
    } catch (const Error&) {  // the peer has died, or dies meanwhile
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
  if (together_) return channels_.front()->meet();
  ++fences_;
  for (const Link& to : links_) {
    if (to.channel == nullptr || to.channel->failed()) continue;
    try {
      to.channel->send(to.there, {.kind = one_sided::Kind::arrive});
    } catch (const Error&) {  // the peer has died
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
