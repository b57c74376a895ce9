// What plugins say goes through NCCL's own logger, and no exception passes into NCCL.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"
#include "bindings/nccl_plugins/plugin_abi.h"

namespace tutti::nccl {

// NCCL has one for all plugins. Null is none.
void set_logger(ncclDebugLogger_t log);
void warn(unsigned long subsystems, const std::string& text);
void inform(unsigned long subsystems, const std::string& text);

// Says the error that is being handled, and what NCCL is to know of it.
ncclResult_t result_of_exception(unsigned long subsystems) noexcept;

// The body of a plugin's function.
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
