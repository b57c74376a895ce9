// A window of one rank: its own part, and its ways to those of the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/one_sided/channel.h"
#include "collectives/one_sided/own_part.h"
#include "collectives/one_sided/shared_part.h"
#include "collectives/one_sided/window.h"

namespace tutti {

class Window::State {
 public:
  // Collective. `owner` keeps the memory, where it is the window's own.
  State(Communicator& world, std::span<std::byte> memory, std::shared_ptr<void> owner,
        Members members);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.size()); }
  uint64_t bytes_of(int rank) const { return links_[static_cast<size_t>(rank)].bytes; }
  one_sided::OwnPart& own() { return *own_; }
  // Throws Error(invalid_argument) where these bytes are not in the rank's part.
  void check(int rank, uint64_t offset, uint64_t bytes) const {
    const bool is_rank = rank >= 0 && rank < size();
    const uint64_t all = is_rank ? bytes_of(rank) : 0;
    if (!is_rank || offset > all || bytes > all - offset) refuse_range(rank, offset, bytes);
  }

  // How a part is reached: in place, where it is shared, or by a channel.
  struct Link {
    uint64_t bytes = 0;
    one_sided::SharedPart part;
    std::shared_ptr<one_sided::Channel> channel;
    int there = 0;  // the rank, in the channel
  };
  const Link& link(int rank) const { return links_[static_cast<size_t>(rank)]; }

  // A rank's part in memory that is shared, this rank's own among them; may be none.
  const one_sided::SharedPart& shared_part(int rank) const {
    return rank == rank_ ? own_->shared() : link(rank).part;
  }

  // Access to a shared part, as long as it lives. Throws where its owner has died or ended it.
  class Inside {
   public:
    Inside(const State& state, int rank) : part_(state.link(rank).part) {
      if (!state.link(rank).channel->failed()) [[likely]]
        entered_ = part_.enter();
      if (entered_ == Entered::no) [[unlikely]]
        state.refuse_access(rank);
    }
    ~Inside() { part_.leave(entered_); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    using Entered = one_sided::SharedPart::Entered;
    const one_sided::SharedPart& part_;
    Entered entered_ = Entered::no;
  };

  // The lock of a shared part, as long as it lives.
  class Combining {
   public:
    Combining(const State& state, int rank) : part_(state.link(rank).part) {
      part_.lock([&state](int holder) { return state.has_died(holder); });
    }
    ~Combining() { part_.unlock(); }
    Combining(const Combining&) = delete;
    Combining& operator=(const Combining&) = delete;

   private:
    const one_sided::SharedPart& part_;
  };

  void check_access(int rank) const {
    if (link(rank).channel->failed() || link(rank).part.is_closed()) refuse_access(rank);
  }

  // The check of SharedPart::lock(), while `holder` has the lock.
  bool has_died(int holder) const;

  // Lets others be served, also by an owner who reads again and again.
  void make_progress();
  // The same at every 64th call, where others reach this rank by messages: calls that touch memory
  // in place make none otherwise.
  void make_progress_at_times() {
    constexpr uint32_t kCalls = 64;
    if (reached_by_messages_ && calls_.fetch_add(1, std::memory_order_relaxed) % kCalls == 0) {
      make_progress();
    }
  }
  // What other ranks' requests may depend on goes out before this one waits.
  void send_added();
  // Waits a while for any request to be served. Throws why the window has failed on this rank.
  // `handles` are the caller's, from one time to the next.
  void wait_for_requests(std::vector<std::optional<Work>>& handles);
  // It has died, and the window goes on without it.
  bool is_gone(int rank) const;
  bool goes_on() const { return !together_; }
  // Returns when all ranks that are left have come.
  void meet();
  // They all end the window now.
  void set_freed() { freed_ = true; }
  void abort(const std::string& reason);

 private:
  [[noreturn]] void refuse_range(int rank, uint64_t offset, uint64_t bytes) const;
  [[noreturn]] void refuse_access(int rank) const;
  void shut_down();
  void share(Communicator& world, std::span<std::byte> memory);
  void open_channels(Communicator& world, Members members);

  const int rank_;
  const std::shared_ptr<void> owner_;
  std::shared_ptr<one_sided::OwnPart> own_;
  std::vector<Link> links_;                                    // by rank
  std::vector<std::shared_ptr<one_sided::Channel>> channels_;  // each once
  const int64_t process_;                                      // a child of fork() has a copy only
  bool together_ = true;
  bool reached_by_messages_ = false;
  std::atomic<uint32_t> calls_{0};
  bool freed_ = false;
  uint64_t fences_ = 0;
};

}  // namespace tutti
