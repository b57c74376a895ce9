// Queues of a communicator: calls in different queues run concurrently. Queue 0 is the communicator
// itself. Each other queue is an internal communicator of the same ranks, with its own order of
// calls, its own messages and its own collective in progress. If one queue fails, all queues fail.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"

namespace tutti::internal {

void CommunicatorImpl::open_queues(int count) {
  require_own_process();
  abort_.throw_if_raised();
  const int open = queues_open_.load(std::memory_order_acquire);
  if (count < open || count > Communicator::kMostQueues) {
    throw Error(ErrorCode::invalid_argument,
                cat("open_queues: ", count, " is not in ", open, " to ", Communicator::kMostQueues),
                {.cause = open > 0 ? cat(open, " queues are already open") : ""});
  }
  std::vector<int> counts(static_cast<size_t>(size()));
  run(Request::all_gather({&count, 1, DType::i32}, {counts.data(), counts.size(), DType::i32}), {});
  for (int r = 0; r < size(); ++r) {
    if (counts[static_cast<size_t>(r)] == count) continue;
    raise_everywhere(Error(
        ErrorCode::mismatch,
        cat(describe(rank_), " opens ", count, " queues, ", describe(r), " opens ",
            counts[static_cast<size_t>(r)]),
        {.remedy = "pass the same number to open_queues() on all ranks", .rank = members_[r]}));
    abort_.throw_if_raised();
  }
  for (int number = open + 1; number <= count; ++number) {
    std::shared_ptr<CommunicatorImpl> made =
        split_off(0, rank_, {.parent = this, .is_part = true, .queue = number});
    {
      const std::unique_lock lock(queues_mutex_);
      queues_.reserve(Communicator::kMostQueues);
      queues_.push_back(std::move(made));
    }
    abort_.throw_if_raised();  // fail_queues() may have run before the new queue was in queues_
    queues_open_.store(number, std::memory_order_release);
  }
}

const std::shared_ptr<CommunicatorImpl>& CommunicatorImpl::queue_of(int number) {
  const int open = queues_open_.load(std::memory_order_acquire);
  if (number >= 1 && number <= open) return queues_[static_cast<size_t>(number) - 1];
  throw Error(ErrorCode::invalid_argument,
              cat("queue ", number, " is not open: the communicator has queues 0 to ", open),
              {.remedy = "call open_queues() on all ranks first"});
}

void CommunicatorImpl::close_queues() {
  std::vector<std::shared_ptr<CommunicatorImpl>> closed;
  {
    const std::unique_lock lock(queues_mutex_);
    closed = std::exchange(queues_, {});
  }
}

void CommunicatorImpl::fail_queues(const Error& error) {
  const std::unique_lock lock(queues_mutex_);
  for (const std::shared_ptr<CommunicatorImpl>& queue : queues_) {
    engine_->control().poison(queue->id_, error);
    queue->on_abort(error);
  }
}

std::string CommunicatorImpl::name_of_call(uint32_t call) const {
  return origin_.queue == 0 ? cat("call ", call) : cat("call ", call, " of queue ", origin_.queue);
}

}  // namespace tutti::internal
