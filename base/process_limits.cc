#include "base/process_limits.h"

#include <sys/resource.h>

#include <cerrno>
#include <optional>
#include <string>

#include "base/text.h"

namespace tutti {
namespace {

// Threads get as much as the limit says, too. 96 KiB was enough for a bench, a topology and
// trainings, 64 KiB was not.
constexpr rlim_t kLeastStack = rlim_t{128} << 10;

// None: unlimited.
std::optional<rlim_t> limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional(limit.rlim_cur);
}

}  // namespace

void require_stack() {
  const std::optional<rlim_t> limit = limit_of(RLIMIT_STACK);
  if (!limit || *limit >= kLeastStack) return;
  throw Error(ErrorCode::system,
              cat("the stack of this process is limited to ", human_bytes(*limit), ", and ",
                  human_bytes(kLeastStack), " is the least that it needs"),
              {.cause = "a limit of the shell or the service manager (ulimit -s, LimitSTACK)",
               .remedy = "raise it, as by `ulimit -s 8192`"});
}

ErrorDetail memory_detail() {
  const std::optional<rlim_t> limit = limit_of(RLIMIT_AS);
  if (!limit) {
    return {.cause = "the machine or the control group has no more memory",
            .remedy = "start fewer ranks, or take smaller buffers or batches"};
  }
  return {.cause = cat("the address space of this process is limited to ", human_bytes(*limit),
                       " (ulimit -v, LimitAS)"),
          .remedy =
              "raise the limit, as by `ulimit -v unlimited`: shared memory needs addresses, "
              "not pages"};
}

bool exceeds_file_limit(uint64_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur;
}

ErrorDetail file_size_detail() {
  const std::optional<rlim_t> limit = limit_of(RLIMIT_FSIZE);
  return {
      .cause = cat("files of this process, shared memory too, are limited to ",
                   limit ? human_bytes(*limit) : "less", " (RLIMIT_FSIZE: ulimit -f, LimitFSIZE)"),
      .remedy = "raise the limit, as by `ulimit -f unlimited`"};
}

Error memory_shortage() {
  return system_error("there is not enough memory", ENOMEM, memory_detail());
}

}  // namespace tutti
