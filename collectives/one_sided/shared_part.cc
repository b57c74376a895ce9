#include "collectives/one_sided/shared_part.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/growing_pause.h"
#include "base/relax.h"
#include "transport/paths/paths.h"

namespace tutti::one_sided {

SharedPart::SharedPart(Paths& paths, const PartPlace& place, int ranks, int own, bool light_fences)
    : first_(std::make_shared<std::atomic<const void*>>(nullptr)),
      own_(own),
      light_fences_(light_fences) {
  data_ = paths.map(place.data, place.bytes);
  const std::shared_ptr<std::byte> control = paths.map(place.control, PartControl::bytes(ranks));
  if (data_ == nullptr || control == nullptr) return;
  reinterpret_cast<PartControl*>(control.get())->users.fetch_add(1);
  control_ = {reinterpret_cast<PartControl*>(control.get()),
              [control, process = ::getpid()](PartControl* mapped) {
                // This is the last access to the mapping. A fork()ed child has only a copy of it.
                if (::getpid() == process) mapped->users.fetch_sub(1);
              }};
  entry_ = &control_->entry(own);
}

SharedPart::SharedPart(std::span<std::byte> data, const std::shared_ptr<void>& control, int own,
                       bool light_fences)
    : data_(std::shared_ptr<void>(), data.data()),
      control_(control, static_cast<PartControl*>(control.get())),
      first_(std::make_shared<std::atomic<const void*>>(nullptr)),
      own_(own),
      light_fences_(light_fences) {
  entry_ = &control_->entry(own);
}

void SharedPart::wait_for_lock(const std::function<bool(int holder)>& check) const {
  constexpr int kSpins = 200;
  for (int tries = 1;; ++tries) {
    if (control_->lock.load(std::memory_order_relaxed) == 0 && try_lock()) return;
    if (tries % kSpins != 0) {
      relax();
      continue;
    }
    uint32_t holder = control_->lock.load(std::memory_order_relaxed);
    if (holder != 0 && check(static_cast<int>(holder) - 1) &&
        control_->lock.compare_exchange_strong(holder, static_cast<uint32_t>(own_) + 1,
                                               std::memory_order_acquire)) {
      return;
    }
    std::this_thread::yield();
  }
}

void SharedPart::free_when_unused(const SharedPart& part, const std::shared_ptr<void>& memory) {
  struct Left {
    std::mutex mutex;
    std::vector<std::pair<SharedPart, std::shared_ptr<void>>> parts;
  };
  static Left left;
  const std::scoped_lock lock(left.mutex);
  left.parts.emplace_back(part, memory);
  std::erase_if(left.parts, [](const auto& one) { return one.first.control().users.load() == 0; });
}

bool SharedPart::close(int ranks, const std::function<bool(int rank)>& is_over) const {
  control_->closed.store(1, std::memory_order_seq_cst);
  heavy_fence();
  constexpr std::chrono::milliseconds kLongestPause(1);
  GrowingPause pause(kLongestPause);
  bool is_empty = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const PartControl::Entry& entry = control_->entry(rank);
    while (entry.of_first.load(std::memory_order_acquire) != 0 ||
           entry.of_others.load(std::memory_order_acquire) != 0) {
      if (is_over(rank)) {
        is_empty = false;
        break;
      }
      pause.sleep();
    }
  }
  return is_empty;
}

}  // namespace tutti::one_sided
