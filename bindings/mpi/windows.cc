#include "bindings/mpi/windows.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/relax.h"
#include "base/text.h"

namespace tutti::mpi {

// Control words of a part, initially zero. Two counters per rank follow this struct.
struct ServedWindow::Control {
  static constexpr uint64_t kExclusive = uint64_t{1} << 32;  // added to the number of shared locks
  alignas(64) std::atomic<uint64_t> lock;

  std::atomic<uint64_t>& posts_from(int rank) { return counters()[2 * rank]; }
  std::atomic<uint64_t>& completions_by(int rank) { return counters()[2 * rank + 1]; }

  static uint64_t bytes(int ranks) {
    return sizeof(Control) + 2 * static_cast<uint64_t>(ranks) * sizeof(uint64_t);
  }

 private:
  std::atomic<uint64_t>* counters() { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1); }
};

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t lines(int64_t bytes) {
  return (static_cast<uint64_t>(bytes) + kLine - 1) / kLine * kLine;
}

// If this rank's part is empty, returns memory that takes its place, because other ranks cannot map
// an empty part. Otherwise returns null.
std::shared_ptr<void> stand_in_for(Channel& channel, int64_t bytes) {
  if (bytes > 0) return nullptr;
  return channel.communicator.allocate<std::byte>(kLine);
}

}  // namespace

uint64_t ServedWindow::bytes_with_control(int64_t bytes, int ranks) {
  return lines(bytes) + Control::bytes(ranks);
}

ServedWindow::ServedWindow(Channel& channel, std::vector<Part> parts, std::byte* memory,
                           std::shared_ptr<void> own)
    : own_(std::move(own)),
      memory_(memory),
      bytes_(parts[static_cast<size_t>(channel.rank)].bytes),
      parts_(std::move(parts)),
      stand_in_(own_ != nullptr ? nullptr : stand_in_for(channel, bytes_)),
      window_(channel.communicator,
              stand_in_ != nullptr
                  ? std::span(static_cast<std::byte*>(stand_in_.get()), kLine)
                  : std::span(memory, own_ != nullptr ? bytes_with_control(bytes_, channel.size)
                                                      : static_cast<uint64_t>(bytes_))) {
  if (own_ == nullptr) {
    controls_ = Window::allocate(channel.communicator, Control::bytes(channel.size));
  }
  map(channel.size);
}

void ServedWindow::map(int ranks) {
  held_.assign(static_cast<size_t>(ranks), Held::no);
  for (int rank = 0; rank < ranks; ++rank) {
    std::byte* const data = window_.mapped(rank).data();
    std::byte* const control =
        controls_ ? controls_->mapped(rank).data() : data + lines(part(rank).bytes);
    is_whole_ = is_whole_ && data != nullptr && control != nullptr;
    data_.push_back(data);
    control_.push_back(reinterpret_cast<Control*>(control));
  }
}

void ServedWindow::set_handle(MPI_Win handle) { PMPI_Win_get_group(handle, &group_); }

ServedWindow::~ServedWindow() {
  if (group_ != MPI_GROUP_NULL) PMPI_Group_free(&group_);
}

// ---- epochs

// Waits until ready() returns true. Meanwhile makes progress in MPI, because other ranks may need
// it for their messages.
template <typename Ready>
void ServedWindow::wait_until(const Ready& ready) {
  constexpr int kSpins = 100;
  for (int tries = 1; !ready(); ++tries) {
    if (tries % kSpins != 0) {
      relax();
      continue;
    }
    make_mpi_progress();
    window_.flush_all();  // throws if a rank has died
    std::this_thread::yield();
  }
}

bool ServedWindow::try_lock(int rank, bool exclusive) {
  std::atomic<uint64_t>& lock = control(rank).lock;
  uint64_t now = exclusive ? 0 : lock.load(std::memory_order_relaxed) % Control::kExclusive;
  const uint64_t wanted = exclusive ? Control::kExclusive : now + 1;
  return lock.compare_exchange_strong(now, wanted, std::memory_order_acquire);
}

void ServedWindow::release(int rank, Held held) {
  if (held == Held::unchecked) return;
  control(rank).lock.fetch_sub(held == Held::exclusive ? Control::kExclusive : 1,
                               std::memory_order_release);
}

void ServedWindow::lock(int type, int rank, int assertion) {
  const bool exclusive = type == MPI_LOCK_EXCLUSIVE;
  const bool unchecked = (assertion & MPI_MODE_NOCHECK) != 0;
  if (!unchecked) wait_until([&] { return try_lock(rank, exclusive); });
  held_[static_cast<size_t>(rank)] =
      unchecked ? Held::unchecked : (exclusive ? Held::exclusive : Held::shared);
}

// Takes all locks or none, because a rank that holds some while it waits could deadlock with
// another.
void ServedWindow::lock_all(int assertion) {
  const bool unchecked = (assertion & MPI_MODE_NOCHECK) != 0;
  const auto try_all = [&] {
    for (int rank = 0; rank < size(); ++rank) {
      if (try_lock(rank, /*exclusive=*/false)) continue;
      while (--rank >= 0) release(rank, Held::shared);
      return false;
    }
    return true;
  };
  if (!unchecked) wait_until(try_all);
  std::ranges::fill(held_, unchecked ? Held::unchecked : Held::shared);
  all_held_ = true;
}

void ServedWindow::unlock(int rank) {
  Held& held = held_[static_cast<size_t>(rank)];
  if (held == Held::no || all_held_) {
    throw ClassedError(MPI_ERR_RMA_SYNC, cat("rank ", rank, " is not locked"));
  }
  flush();
  release(rank, std::exchange(held, Held::no));
}

void ServedWindow::unlock_all() {
  if (!all_held_) throw ClassedError(MPI_ERR_RMA_SYNC, "the window is not locked");
  flush();
  all_held_ = false;
  for (int rank = 0; rank < size(); ++rank) {
    release(rank, std::exchange(held_[static_cast<size_t>(rank)], Held::no));
  }
}

// Completes all accesses, and makes progress now and then, because a program may flush repeatedly
// until it sees another rank's write.
void ServedWindow::flush() {
  constexpr uint32_t kFlushes = 64;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t flushes =
      flushes_.load(std::memory_order_relaxed) + 1;  // concurrent increments may be lost
  flushes_.store(flushes, std::memory_order_relaxed);
  if (flushes % kFlushes == 0) make_mpi_progress();
}

std::vector<int> ServedWindow::ranks_of(MPI_Group group) const {
  int count = 0;
  PMPI_Group_size(group, &count);
  std::vector<int> own(static_cast<size_t>(count));
  std::vector<int> ranks(own.size());
  std::iota(own.begin(), own.end(), 0);
  PMPI_Group_translate_ranks(group, count, own.data(), group_, ranks.data());
  if (std::ranges::find(ranks, MPI_UNDEFINED) != ranks.end()) {
    throw ClassedError(MPI_ERR_GROUP, "the group contains ranks that are not in the window");
  }
  return ranks;
}

void ServedWindow::post(MPI_Group group) {
  posted_ = ranks_of(group);
  for (const int origin : posted_) control(origin).posts_from(rank()).fetch_add(1);
}

void ServedWindow::start(MPI_Group group) {
  started_ = ranks_of(group);
  for (const int target : started_) {
    std::atomic<uint64_t>& posts = control(rank()).posts_from(target);
    wait_until([&] { return posts.load() > 0; });
    posts.fetch_sub(1);
  }
}

void ServedWindow::complete() {
  for (const int target : std::exchange(started_, {})) {
    control(target).completions_by(rank()).fetch_add(1);
  }
}

bool ServedWindow::test() {
  Control& own = control(rank());
  const auto is_over = [&](int origin) { return own.completions_by(origin).load() > 0; };
  if (!std::ranges::all_of(posted_, is_over)) return false;
  for (const int origin : std::exchange(posted_, {})) own.completions_by(origin).fetch_sub(1);
  return true;
}

void ServedWindow::wait() {
  wait_until([this] { return test(); });
}

// ---- all windows of this process

namespace {

// The window that a thread looked up last, and the version of the table at that time.
struct LastWindow {
  uint64_t changes = 0;
  MPI_Win win = MPI_WIN_NULL;
  ServedWindow* window = nullptr;
};
// The library is loaded at program start, so its thread-local variables need no look-up.
[[gnu::tls_model("initial-exec")]] thread_local LastWindow last_window;

class WindowTable {
 public:
  ServedWindow* find(MPI_Win win) {
    if (count_.load(std::memory_order_acquire) == 0) return nullptr;
    LastWindow& last = last_window;
    const uint64_t changes = changes_.load(std::memory_order_acquire);
    if (last.changes != changes || last.win != win) {
      const std::lock_guard lock(mutex_);
      const auto found = windows_.find(win);
      last = {changes, win, found == windows_.end() ? nullptr : found->second.get()};
    }
    return last.window;
  }

  void add(MPI_Win win, std::unique_ptr<ServedWindow> window) {
    const std::lock_guard lock(mutex_);
    windows_[win] = std::move(window);
    changed();
  }

  std::unique_ptr<ServedWindow> remove(MPI_Win win) {
    const std::lock_guard lock(mutex_);
    auto node = windows_.extract(win);
    changed();
    return node.empty() ? nullptr : std::move(node.mapped());
  }

  void clear() {
    std::map<MPI_Win, std::unique_ptr<ServedWindow>> all;
    const std::lock_guard lock(mutex_);
    all.swap(windows_);
    changed();
  }

  bool has_memory(const std::byte* memory, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(windows_, [&](const auto& one) {
      const ServedWindow& window = *one.second;
      return window.is_allocated() && memory >= window.memory() &&
             memory + bytes <= window.memory() + window.part(window.rank()).bytes;
    });
  }

 private:
  void changed() {
    count_.store(windows_.size(), std::memory_order_release);
    changes_.fetch_add(1, std::memory_order_release);
  }

  std::mutex mutex_;
  std::map<MPI_Win, std::unique_ptr<ServedWindow>> windows_;  // guarded by mutex_
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> changes_{0};
};

// The table is never destroyed, so that exit() does not end windows that the program has not freed.
WindowTable& window_table = *std::make_unique<WindowTable>().release();

}  // namespace

ServedWindow* served(MPI_Win win) { return window_table.find(win); }
void add_window(MPI_Win win, std::unique_ptr<ServedWindow> window) {
  window_table.add(win, std::move(window));
}
std::unique_ptr<ServedWindow> remove_window(MPI_Win win) { return window_table.remove(win); }
void end_windows() { window_table.clear(); }

// ---- memory

namespace {

struct AllocatedMemory {
  std::mutex mutex;
  std::map<const std::byte*, std::pair<std::shared_ptr<void>, int64_t>> pieces;
};

AllocatedMemory& allocated_memory() {
  static AllocatedMemory& all = *std::make_unique<AllocatedMemory>().release();
  return all;
}

}  // namespace

void* allocate_memory(MPI_Aint bytes, MPI_Info info) {
  if (bytes <= 0 || info != MPI_INFO_NULL) return nullptr;
  std::shared_ptr<void> memory = allocate_for_windows(static_cast<uint64_t>(bytes));
  if (memory == nullptr) return nullptr;
  void* const data = memory.get();
  AllocatedMemory& all = allocated_memory();
  const std::lock_guard lock(all.mutex);
  all.pieces[static_cast<std::byte*>(data)] = {std::move(memory), bytes};
  return data;
}

bool free_memory(void* memory) {
  AllocatedMemory& all = allocated_memory();
  decltype(all.pieces)::node_type piece;  // destroyed, and so freed, outside the lock
  const std::lock_guard lock(all.mutex);
  piece = all.pieces.extract(static_cast<std::byte*>(memory));
  return !piece.empty();
}

bool is_allocated_memory(const void* memory, MPI_Aint bytes) {
  const auto* const data = static_cast<const std::byte*>(memory);
  if (window_table.has_memory(data, bytes)) return true;
  AllocatedMemory& all = allocated_memory();
  const std::lock_guard lock(all.mutex);
  auto next = all.pieces.upper_bound(data);
  if (next == all.pieces.begin()) return false;
  const auto& [start, piece] = *--next;
  return data + bytes <= start + piece.second;
}

}  // namespace tutti::mpi
