#include "bindings/nccl_plugins/host_log.h"

#include <atomic>
#include <exception>

namespace tutti::nccl {

namespace {

std::atomic<ncclDebugLogger_t> logger{nullptr};

void say(ncclDebugLogLevel level, unsigned long subsystems, const std::string& text) {
  const ncclDebugLogger_t log = logger.load(std::memory_order_acquire);
  if (log != nullptr) log(level, subsystems, "tutti", 0, "tutti: %s", text.c_str());
}

ncclResult_t result_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return ncclInvalidArgument;
    case ErrorCode::mismatch:
    case ErrorCode::unsupported:
      return ncclInvalidUsage;
    case ErrorCode::rank_died:
    case ErrorCode::connection_lost:
    case ErrorCode::timeout:
    case ErrorCode::aborted:
    case ErrorCode::bootstrap:
    case ErrorCode::corrupted:
      return ncclRemoteError;
    case ErrorCode::ok:
    case ErrorCode::system:
      return ncclSystemError;
    case ErrorCode::internal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

}  // namespace

void set_logger(ncclDebugLogger_t log) {
  if (log != nullptr) logger.store(log, std::memory_order_release);
}

void warn(unsigned long subsystems, const std::string& text) {
  say(NCCL_LOG_WARN, subsystems, text);
}

void inform(unsigned long subsystems, const std::string& text) {
  say(NCCL_LOG_INFO, subsystems, text);
}

ncclResult_t result_of_exception(unsigned long subsystems) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    warn(subsystems, error.what());
    return result_of(error.code());
  } catch (const std::exception& error) {
    warn(subsystems, error.what());
    return ncclInternalError;
  } catch (...) {
    return ncclInternalError;
  }
}

}  // namespace tutti::nccl
