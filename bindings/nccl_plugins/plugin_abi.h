// The common part of NCCL's plugin ABIs: results and the logger. The layouts in this directory's
// *_abi.h are NCCL's interface, redeclared from its headers (NVIDIA/nccl, src/include/plugin and
// plugins/*/example/nccl: Copyright NVIDIA CORPORATION, BSD 3-clause up to 2.28, Apache-2.0 since).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/nccl/abi.h"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {

enum ncclDebugLogLevel {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
};
inline constexpr unsigned long NCCL_INIT = 1;
inline constexpr unsigned long NCCL_NET = 16;
inline constexpr unsigned long NCCL_TUNING = 64;

using ncclDebugLogger_t = void (*)(ncclDebugLogLevel level, unsigned long flags, const char* file,
                                   int line, const char* format, ...);
// The callback by which a network reports its own events to NCCL's profiler.
using ncclProfilerCallback_t = ncclResult_t (*)(void** event, int type, void* parent,
                                                int64_t plugin, void* data);
}
// NOLINTEND(readability-identifier-naming)
