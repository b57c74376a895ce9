// Another rank's part as accessed by a fabric's remote memory access (RMA), in order with the
// requests that are sent to its owner as messages:
//
//   - an access begins only if all earlier messages have been served (may_access());
//   - a message is sent only once all earlier puts are visible in the owner's memory (flush()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "transport/remote_memory.h"

namespace tutti::one_sided {

// Thread-safe. Concurrent calls of several threads take effect in any order.
class RemotePart {
 public:
  // Makes progress on all calls of the job, sleeping for up to a millisecond if `sleeps`. Throws an
  // error if the path to the owner has failed.
  using Progress = std::function<void(bool sleeps)>;

  // `rank`: the owner's rank, for error texts.
  RemotePart(std::unique_ptr<RemoteMemory> memory, int rank, Progress progress);

  // Blocks until `from` may be reused.
  void put(uint64_t offset, std::span<const std::byte> from);
  // Blocks until the data have arrived.
  void get(uint64_t offset, std::span<std::byte> into);
  // Blocks until all puts are visible in the owner's memory.
  void flush();

  // Returns the number of messages sent to the owner. The caller calls count_message() after each.
  uint64_t messages() const { return messages_.load(std::memory_order_acquire); }
  void count_message() { messages_.fetch_add(1, std::memory_order_release); }
  // Records that the owner has served the first `messages` messages.
  void set_served(uint64_t messages);
  // Returns true if an access would be in order, because the owner has served all messages.
  bool may_access() const { return served_.load(std::memory_order_acquire) == messages(); }

 private:
  template <typename Done>
  void wait(const Done& done);
  [[noreturn]] void refuse(const std::string& why);

  const std::unique_ptr<RemoteMemory> memory_;
  const int rank_;
  const Progress progress_;
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<uint64_t> served_ = 0;
};

}  // namespace tutti::one_sided
