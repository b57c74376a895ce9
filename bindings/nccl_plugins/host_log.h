// Routes plugin messages to NCCL's logger, and keeps exceptions out of NCCL.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"
#include "bindings/nccl_plugins/plugin_abi.h"

namespace tutti::nccl {

// Sets NCCL's logger, which all plugins share. Null is ignored.
void set_logger(ncclDebugLogger_t log);
void warn(unsigned long subsystems, const std::string& text);
void inform(unsigned long subsystems, const std::string& text);

// Logs the exception being handled, and returns NCCL's result code for it.
ncclResult_t result_of_exception(unsigned long subsystems) noexcept;

// Runs the body of a plugin's function, and returns the result code.
template <typename Body>
ncclResult_t guarded(unsigned long subsystems, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return ncclSuccess;
  } catch (...) {
    return result_of_exception(subsystems);
  }
}

}  // namespace tutti::nccl
