#include "base/process_limits.h"

#include <sys/resource.h>

#include <cerrno>
#include <optional>
#include <string>

#include "base/text.h"

namespace tutti {
namespace {

// Minimum stack limit, which is also the size of thread stacks. 96 KiB was enough for a bench, a
// topology and trainings; 64 KiB was not.
constexpr rlim_t kLeastStack = rlim_t{128} << 10;

// Returns nullopt for unlimited.
std::optional<rlim_t> limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional(limit.rlim_cur);
}

}  // namespace

void require_stack() {
  const std::optional<rlim_t> limit = limit_of(RLIMIT_STACK);
  if (!limit || *limit >= kLeastStack) return;
  throw Error(
      ErrorCode::system,
      cat("the stack of this process is limited to ", human_bytes(*limit), ", but needs at least ",
          human_bytes(kLeastStack)),
      {.cause = "a limit of the shell or the service manager applies (ulimit -s, LimitSTACK)",
       .remedy = "raise the limit, for example `ulimit -s 8192`"});
}

ErrorDetail memory_detail() {
  const std::optional<rlim_t> limit = limit_of(RLIMIT_AS);
  if (!limit) {
    return {.cause = "the memory of the machine or of the control group is exhausted",
            .remedy = "start fewer ranks, or use smaller buffers or batches"};
  }
  return {.cause = cat("the address space of this process is limited to ", human_bytes(*limit),
                       " (ulimit -v, LimitAS)"),
          .remedy =
              "raise the limit, for example `ulimit -v unlimited`: shared memory uses address "
              "space, not pages"};
}

bool exceeds_file_limit(uint64_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur;
}

ErrorDetail file_size_detail() {
  const std::optional<rlim_t> limit = limit_of(RLIMIT_FSIZE);
  return {
      .cause = cat("files of this process, shared memory included, are limited to ",
                   limit ? human_bytes(*limit) : "less", " (RLIMIT_FSIZE: ulimit -f, LimitFSIZE)"),
      .remedy = "raise the limit, for example `ulimit -f unlimited`"};
}

Error memory_shortage() { return system_error("out of memory", ENOMEM, memory_detail()); }

}  // namespace tutti
