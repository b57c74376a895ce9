// State of a window on one rank: its own part, and its links to the other ranks' parts.
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
#include "collectives/one_sided/remote_part.h"
#include "collectives/one_sided/shared_part.h"
#include "collectives/one_sided/window.h"

namespace tutti {

class Window::State {
 public:
  // Creates the state. Collective. `owner` keeps the memory alive if the window owns it.
  State(Communicator& world, std::span<std::byte> memory, std::shared_ptr<void> owner,
        Members members);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t bytes_of(int rank) const { return links_[static_cast<size_t>(rank)].bytes; }
  one_sided::OwnPart& own() { return *own_; }
  // Throws Error(invalid_argument) if these bytes are not within the rank's part.
  void check(int rank, uint64_t offset, uint64_t bytes) const {
    const bool is_rank = rank >= 0 && rank < size();
    const uint64_t all = is_rank ? bytes_of(rank) : 0;
    if (!is_rank || offset > all || bytes > all - offset) refuse_range(rank, offset, bytes);
  }

  // How this rank accesses a part: in place if `part` is shared, otherwise by messages on `channel`
  // and, if the fabric has remote memory access, by `remote`.
  struct Link {
    uint64_t bytes = 0;
    one_sided::SharedPart part;
    std::shared_ptr<one_sided::Channel> channel;
    int there = 0;  // index of the part's rank in the channel
    std::unique_ptr<one_sided::RemotePart> remote;

    // Returns true if an access by `remote` now would be in order with earlier messages.
    bool may_access() const { return remote != nullptr && remote->may_access(); }
    // Flushes this rank's puts by `remote`, then calls `send`, which sends one message to the
    // owner.
    template <typename Send>
    void send_in_order(const Send& send) const {
      if (remote == nullptr) return send();
      remote->flush();
      send();
      remote->count_message();
    }
    // Flushes this rank's puts by `remote`, then calls Channel::ask(). Its answer shows that the
    // owner has served all earlier messages.
    void ask(const one_sided::Header& header, void* answer, uint64_t bytes) const;
  };
  const Link& link(int rank) const { return links_[static_cast<size_t>(rank)]; }

  // Returns a rank's part (possibly this rank's) in shared memory. The part is empty if it is not
  // shared.
  const one_sided::SharedPart& shared_part(int rank) const {
    return rank == rank_ ? own_->shared() : link(rank).part;
  }

  // RAII access to a shared part. Throws if the owner has died or has ended its part.
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

  // RAII lock of a shared part.
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

  // Check that is passed to SharedPart::lock(). Returns is_gone(holder); throws if the window has
  // failed.
  bool has_died(int holder) const;

  // Serves other ranks' requests. An owner that only reads its memory in a loop also calls it, so
  // that it sees other ranks' writes.
  void make_progress();
  // Calls make_progress() in every 64th call if other ranks reach this rank by messages, because
  // calls that access memory in place make no progress otherwise.
  void make_progress_at_times() {
    constexpr uint32_t kCalls = 64;
    if (reached_by_messages_ && calls_.fetch_add(1, std::memory_order_relaxed) % kCalls == 0) {
      make_progress();
    }
  }
  // Sends pending messages. It must be called before this rank waits, because other ranks' progress
  // may depend on them.
  void send_added();
  // Waits for a short time until any request is served. Throws an error if the window has failed on
  // this rank. The caller passes the same `handles` to successive calls.
  void wait_for_requests(std::vector<std::optional<Work>>& handles);
  // Returns true if `rank` has died or has ended its part, and the window continues without it.
  bool is_gone(int rank) const;
  bool continues() const { return !together_; }
  // Waits until all surviving ranks have called meet().
  void meet();
  // Marks the window as freed by all ranks.
  void set_freed() { freed_ = true; }
  void abort(const std::string& reason);

 private:
  [[noreturn]] void refuse_range(int rank, uint64_t offset, uint64_t bytes) const;
  [[noreturn]] void refuse_access(int rank) const;
  void shut_down();
  void share(Communicator& world, std::span<std::byte> memory);
  void expose(Communicator& world);
  void open_channels(Communicator& world, Members members);

  const int rank_;
  const int size_;
  const std::shared_ptr<void> owner_;
  std::shared_ptr<one_sided::OwnPart> own_;
  std::unique_ptr<ExposedMemory> exposed_;                     // null: no memory is exposed
  std::vector<Link> links_;                                    // links to the parts, by rank
  std::vector<std::shared_ptr<one_sided::Channel>> channels_;  // distinct channels of links_
  const int64_t process_;  // the process that created the window
  bool together_ = true;
  bool reached_by_messages_ = false;
  std::atomic<uint32_t> calls_{0};
  bool freed_ = false;
  uint64_t fences_ = 0;
};

}  // namespace tutti
