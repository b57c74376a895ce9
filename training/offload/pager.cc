#include "training/offload/pager.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"
#include "base/text.h"

namespace tutti::training {

Pager::Pager(std::string directory)
    : directory_(std::move(directory)),
      thread_(start_thread("memory in files", [this] { work(); })) {
  struct ::statfs disk {};
  if (::statfs(directory_.c_str(), &disk) != 0 || disk.f_type != TMPFS_MAGIC) return;
  log(LogLevel::warning,
      cat("--offload-dir ", directory_, " is in memory itself (tmpfs): offloading saves nothing"));
}

Pager::~Pager() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  asked_.notify_all();
  thread_.join();
}

std::shared_ptr<std::byte[]> Pager::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  auto file = std::make_shared<FileMemory>(directory_, bytes);
  std::byte* const data = file->data();
  const std::lock_guard lock(mutex_);
  files_[data] = file;
  bytes_ += bytes;
  return {std::move(file), data};
}

std::shared_ptr<FileMemory> Pager::file_of(const void* address) const {
  const std::lock_guard lock(mutex_);
  auto after = files_.upper_bound(static_cast<const std::byte*>(address));
  if (after == files_.begin()) return nullptr;
  const std::shared_ptr<FileMemory>& file = std::prev(after)->second;
  return file->contains(address) ? file : nullptr;
}

Pager::Ticket Pager::fetch(std::span<const PageRange> ranges) {
  for (const PageRange& range : ranges) {
    const std::shared_ptr<FileMemory> file = file_of(range.bytes.data());
    if (file != nullptr) file->start_reading(range.bytes);
  }
  return add(Kind::load, ranges);
}

void Pager::start_writing(std::span<const PageRange> ranges) { add(Kind::write, ranges); }

Pager::Ticket Pager::evict(std::span<const PageRange> ranges) { return add(Kind::evict, ranges); }

void Pager::store(std::span<const std::byte> bytes, std::byte* to) {
  file_of(to)->store(bytes, to);
}

Pager::Ticket Pager::add(Kind kind, std::span<const PageRange> ranges) {
  std::deque<Task> tasks;
  for (const PageRange& range : ranges) {
    std::shared_ptr<FileMemory> file = file_of(range.bytes.data());
    if (file != nullptr) tasks.push_back({kind, std::move(file), range});
  }
  const std::lock_guard lock(mutex_);
  last_asked_ += tasks.size();
  for (Task& task : tasks) tasks_.push_back(std::move(task));
  asked_.notify_one();
  return last_asked_;
}

void Pager::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return last_done_ >= ticket || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Pager::carry_out(const Task& task) {
  switch (task.kind) {
    case Kind::load:
      return task.file->load(task.range.bytes, task.range.writes);
    case Kind::write:
      return task.file->start_writing(task.range.bytes);
    case Kind::evict:
      return task.file->evict(task.range.bytes);
  }
}

void Pager::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
    if (ends_) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      carry_out(task);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++last_done_;
    if (failure && !failure_) failure_ = failure;
    done_.notify_all();
  }
}

}  // namespace tutti::training
