#include "collectives/group.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/growing_pause.h"

namespace tutti {

namespace {

struct Group {
  int depth = 0;
  std::vector<Work> works;
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

}  // namespace

bool internal::in_group() { return group().depth > 0; }

void internal::join_group(const Work& work) {
  if (in_group()) group().works.push_back(work);
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
  if (group().depth == 0) {
    throw Error(ErrorCode::invalid_argument, "group_end() without a group_begin()",
                {.cause = "a group belongs to the thread that began it"});
  }
  if (--group().depth > 0) return {};
  return std::exchange(group().works, {});
}

// All of them are waited for, so that no buffer is in use any more when an error is thrown.
void group_end() {
  std::exception_ptr failure;
  std::vector<Work> works = group_end_async();
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
