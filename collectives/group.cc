#include "collectives/group.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/growing_pause.h"

namespace tutti {

namespace {

struct Group {
  int depth = 0;
  std::vector<Work> works;
  std::vector<internal::DeviceCallOfGroup> device_calls;
};

Group& group() {
  thread_local Group instance;
  return instance;
}

// Calls of several ranks wait for each other: whoever waited for one alone would hold up the rest.
void progress_in_turn(std::vector<Work>& works) {
  constexpr std::chrono::microseconds kLongestPause{200};
  GrowingPause pause(kLongestPause);
  const auto under_way = [](Work& work) { return work.poll() == WorkState::under_way; };
  size_t left = works.size();
  while (left > 0) {
    const auto still = static_cast<size_t>(std::ranges::count_if(works, under_way));
    if (still < left) pause.reset();
    if (still > 0) pause.sleep();
    left = still;
  }
}

using DeviceCalls = std::vector<internal::DeviceCallOfGroup>;

// The first Error, when all have been tried.
void put_in_order(const DeviceCalls& calls, std::exception_ptr& failure) {
  for (const bool receives : {false, true}) {
    for (const internal::DeviceCallOfGroup& call : calls) {
      if (call.receives != receives) continue;
      try {
        call.put();
      } catch (const Error&) {
        if (!failure) failure = std::current_exception();
      }
    }
  }
}

// Each rank's in a thread of its own, where there are several: a communicator's first call meets
// the other ranks. What is wrong with the first that was wrong.
std::exception_ptr put_into_streams(const DeviceCalls& calls) {
  std::map<const void*, DeviceCalls> by_rank;
  for (const internal::DeviceCallOfGroup& call : calls) by_rank[call.rank].push_back(call);
  std::vector<std::exception_ptr> failures(by_rank.size());
  if (by_rank.size() == 1) {
    put_in_order(calls, failures[0]);
  } else {
    std::vector<std::jthread> threads;
    size_t next = 0;
    for (const auto& [rank, own] : by_rank) {
      threads.emplace_back(
          [&own = own, &failure = failures[next++]] { put_in_order(own, failure); });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) return failure;
  }
  return nullptr;
}

// The Works of the outermost group.
std::vector<Work> close_group(std::exception_ptr& failure) {
  if (group().depth == 0) {
    throw Error(ErrorCode::invalid_argument, "group_end() without a group_begin()",
                {.cause = "a group belongs to the thread that began it"});
  }
  if (--group().depth > 0) return {};
  std::vector<Work> works = std::exchange(group().works, {});
  failure = put_into_streams(std::exchange(group().device_calls, {}));
  return works;
}

}  // namespace

bool internal::in_group() { return group().depth > 0; }

void internal::join_group(const Work& work) {
  if (in_group()) group().works.push_back(work);
}

void internal::join_group(DeviceCallOfGroup call) {
  group().device_calls.push_back(std::move(call));
}

bool internal::of_several_ranks(const std::vector<Work>& works) {
  const void* first = nullptr;
  for (const Work& work : works) {
    const void* const rank = rank_behind(work);
    if (rank == nullptr) continue;
    if (first != nullptr && rank != first) return true;
    first = rank;
  }
  return false;
}

void group_begin() { ++group().depth; }

std::vector<Work> group_end_async() {
  std::exception_ptr failure;
  std::vector<Work> works = close_group(failure);
  if (failure) std::rethrow_exception(failure);
  return works;
}

// All of them are waited for, so that no buffer is in use any more when an error is thrown.
void group_end() {
  std::exception_ptr failure;
  std::vector<Work> works = close_group(failure);
  if (internal::of_several_ranks(works)) progress_in_turn(works);
  for (Work& work : works) {
    try {
      work.wait();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti
