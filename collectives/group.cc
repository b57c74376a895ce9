#include "collectives/group.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/cuda/device.h"
#include "base/error.h"
#include "base/growing_pause.h"
#include "base/start_thread.h"

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

// Makes progress on the calls of several ranks in turn. The ranks wait for each other, so waiting
// for one rank's call alone would block the others.
void progress_in_turn(std::vector<Work>& works) {
  constexpr std::chrono::microseconds kLongestPause{200};
  GrowingPause pause(kLongestPause);
  const auto in_flight = [](Work& work) { return work.poll() == WorkState::in_flight; };
  size_t left = works.size();
  while (left > 0) {
    const auto still = static_cast<size_t>(std::ranges::count_if(works, in_flight));
    if (still < left) pause.reset();
    if (still > 0) pause.sleep();
    left = still;
  }
}

using DeviceCalls = std::vector<internal::DeviceCallOfGroup>;

// Enqueues the calls on their streams: first all except receives, then the receives, each in order.
// If a call fails, the next calls are enqueued all the same, and `failure` is set to the first
// error.
void put_in_order(const DeviceCalls& calls, std::exception_ptr& failure) {
  for (const bool receives : {false, true}) {
    for (const internal::DeviceCallOfGroup& call : calls) {
      if (call.receives != receives) continue;
      try {
        call.put();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  }
}

// Enqueues the calls of one rank. Runs on a thread that serves only this rank.
void put_of_rank(const DeviceCalls& calls, std::exception_ptr& failure) {
  try {
    if (std::ranges::any_of(calls, &internal::DeviceCallOfGroup::in_stream_of_thread)) {
      throw Error(ErrorCode::unsupported,
                  "a group with calls of several GPUs or ranks cannot use cudaStreamPerThread",
                  {.cause = "each rank's calls are enqueued by a separate thread, which has "
                            "another cudaStreamPerThread",
                   .remedy = "use a stream from cudaStreamCreate()"});
    }
    const cuda::Context context(calls.front().device);
    const cuda::CurrentContext current(context);
    put_in_order(calls, failure);
  } catch (...) {
    failure = std::current_exception();
  }
}

// The calls of a group that one thread enqueues. All are on one GPU. The calls on communicators of
// one job are all made by the same rank.
struct ThreadOfRank {
  int device = 0;
  std::vector<std::pair<size_t, const void*>> ranks;  // (hash of the job's name, its rank)
  DeviceCalls calls;

  // Returns true if the call belongs to this thread; then it records the call's rank.
  bool takes(const internal::DeviceCallOfGroup& call) {
    if (call.device != device) return false;
    const auto known = std::ranges::find(ranks, call.job, &std::pair<size_t, const void*>::first);
    if (known != ranks.end()) return known->second == call.rank;
    ranks.emplace_back(call.job, call.rank);
    return true;
  }
};

// Assigns the calls to threads so that no thread enqueues calls of two ranks of one job. Enqueuing
// a communicator's first call waits for its other ranks, so such a thread would deadlock. A rank's
// calls keep their order over all its communicators.
std::vector<ThreadOfRank> by_rank(DeviceCalls calls) {
  std::vector<ThreadOfRank> threads;
  for (internal::DeviceCallOfGroup& call : calls) {
    auto own = std::ranges::find_if(threads, [&](ThreadOfRank& one) { return one.takes(call); });
    if (own == threads.end()) {
      threads.push_back({.device = call.device, .ranks = {{call.job, call.rank}}, .calls = {}});
      own = threads.end() - 1;
    }
    own->calls.push_back(std::move(call));
  }
  return threads;
}

// Enqueues the calls and returns the first failure.
std::exception_ptr put_into_streams(DeviceCalls calls) {
  const std::vector<ThreadOfRank> ranks = by_rank(std::move(calls));
  std::vector<std::exception_ptr> failures(ranks.size());
  if (ranks.size() == 1) {
    put_in_order(ranks[0].calls, failures[0]);
  } else {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.push_back(start_thread<std::jthread>(
          "group", [&own = ranks[i].calls, &failure = failures[i]] { put_of_rank(own, failure); }));
    }
  }
  const auto failed =
      std::ranges::find_if(failures, [](const auto& one) { return one != nullptr; });
  return failed == failures.end() ? nullptr : *failed;
}

// Waits for all Works, so that no buffer is in use when an error is thrown. Each Work is polled
// first: a receive that no thread waits for may be blocked by the limit on unexpected messages.
void wait_for(std::vector<Work>& works, std::exception_ptr& failure) {
  if (internal::of_several_ranks(works)) {
    progress_in_turn(works);
  } else {
    for (Work& work : works) work.poll();
  }
  for (Work& work : works) {
    try {
      work.wait();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
}

// Ends the innermost group. If it is the outermost one, enqueues its calls on device memory, sets
// `failure` to the first error among them, and returns the Works of the other calls.
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
  if (!failure) return works;
  wait_for(works, failure);
  std::rethrow_exception(failure);
}

void group_end() {
  std::exception_ptr failure;
  std::vector<Work> works = close_group(failure);
  wait_for(works, failure);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti
