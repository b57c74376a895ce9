#include "collectives/group.h"

#include <exception>
#include <utility>

#include "base/error.h"

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

}  // namespace

bool internal::in_group() { return group().depth > 0; }

void internal::join_group(const Work& work) {
  if (in_group()) group().works.push_back(work);
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
  for (Work& work : group_end_async()) {
    try {
      work.wait();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti
