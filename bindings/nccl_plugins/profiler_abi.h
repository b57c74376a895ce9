// The ABI of NCCL's profiler plugins, versions 3 to 6 (src/include/plugin/profiler/profiler_v3.h to
// profiler_v6.h and nccl_profiler.h), without the members for events that this plugin does not
// request.
#pragma once

#include <sys/types.h>

#include "bindings/nccl_plugins/plugin_abi.h"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {

inline constexpr int ncclProfileGroup = 1 << 0;
inline constexpr int ncclProfileColl = 1 << 1;
inline constexpr int ncclProfileP2p = 1 << 2;
inline constexpr int ncclProfileProxyOp = 1 << 3;
inline constexpr int ncclProfileProxyStep = 1 << 4;
inline constexpr int ncclProfileGroupApi = 1 << 8;
inline constexpr int ncclProfileCollApi = 1 << 9;
inline constexpr int ncclProfileP2pApi = 1 << 10;
inline constexpr int ncclProfileKernelLaunch = 1 << 11;

enum ncclProfilerEventState_t {
  ncclProfilerProxyStepSendGPUWait = 8,
  ncclProfilerProxyStepSendWait = 9,
  ncclProfilerProxyStepRecvWait = 10,
  ncclProfilerProxyStepRecvFlushWait = 11,
  ncclProfilerProxyStepRecvGPUWait = 12,
  ncclProfilerProxyOpInProgress_v4 = 19,
  ncclProfilerProxyStepSendPeerWait_v4 = 20,
  ncclProfilerGroupStartApiStop = 23,
  ncclProfilerGroupEndApiStart = 24,
};

struct ncclProfilerProxyOp {
  pid_t pid;
  uint8_t channelId;
  int peer;
  int nSteps;
  int chunkSize;
  int isSend;
};
struct ncclProfilerProxyStep {
  int step;
};

struct ncclProfilerEventDescr_v3_t {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      const char* datatype;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    struct {
      const char* name;
      uint64_t commHash;
      const char* func;
      void* buff;
      const char* datatype;
      size_t count;
      int peer;
    } p2p;
    ncclProfilerProxyOp proxyOp;
    ncclProfilerProxyStep proxyStep;
  };
};

struct ncclProfilerEventDescr_v4_t {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      const char* datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* datatype;
      size_t count;
      int peer;
      uint8_t nChannels;
    } p2p;
    ncclProfilerProxyOp proxyOp;
    ncclProfilerProxyStep proxyStep;
  };
};

// Description of an event. v6 has more union members, for events of copy engines.
struct ncclProfilerEventDescr_v5_t {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      bool graphCaptured;
      int groupDepth;
    } groupApi;
    struct {
      const char* func;
      size_t count;
      const char* datatype;
      int root;
      void* stream;
      bool graphCaptured;
    } collApi;
    struct {
      const char* func;
      size_t count;
      const char* datatype;
      void* stream;
      bool graphCaptured;
    } p2pApi;
    struct {
      uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      const char* datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char* algo;
      const char* proto;
      void* parentGroup;
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* datatype;
      size_t count;
      int peer;
      uint8_t nChannels;
      void* parentGroup;
    } p2p;
    ncclProfilerProxyOp proxyOp;
    ncclProfilerProxyStep proxyStep;
  };
};

union ncclProfilerEventStateArgs_v3_t {
  struct {
    size_t transSize;
    int steps;
  } proxyOp;
};
union ncclProfilerEventStateArgs_v4_t {  // also later versions
  struct {
    size_t transSize;
  } proxyStep;
  void* other;
};

struct ncclProfiler_v3_t {
  const char* name;
  ncclResult_t (*init)(void** context, int* mask);
  ncclResult_t (*startEvent)(void* context, void** event, ncclProfilerEventDescr_v3_t* what);
  ncclResult_t (*stopEvent)(void* event);
  ncclResult_t (*recordEventState)(void* event, ncclProfilerEventState_t state,
                                   ncclProfilerEventStateArgs_v3_t* arguments);
  ncclResult_t (*finalize)(void* context);
};

struct ncclProfiler_v4_t {
  const char* name;
  ncclResult_t (*init)(void** context, int* mask, const char* comm_name, uint64_t comm_hash,
                       int nodes, int ranks, int rank, ncclDebugLogger_t log);
  ncclResult_t (*startEvent)(void* context, void** event, ncclProfilerEventDescr_v4_t* what);
  ncclResult_t (*stopEvent)(void* event);
  ncclResult_t (*recordEventState)(void* event, ncclProfilerEventState_t state,
                                   ncclProfilerEventStateArgs_v4_t* arguments);
  ncclResult_t (*finalize)(void* context);
};

struct ncclProfiler_v5_t {  // also v6
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, int* mask, const char* comm_name,
                       int nodes, int ranks, int rank, ncclDebugLogger_t log);
  ncclResult_t (*startEvent)(void* context, void** event, ncclProfilerEventDescr_v5_t* what);
  ncclResult_t (*stopEvent)(void* event);
  ncclResult_t (*recordEventState)(void* event, ncclProfilerEventState_t state,
                                   ncclProfilerEventStateArgs_v4_t* arguments);
  ncclResult_t (*finalize)(void* context);
};
}
// NOLINTEND(readability-identifier-naming)
