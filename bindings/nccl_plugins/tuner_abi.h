// The ABI of NCCL's tuner plugins, versions 3 to 6 (src/include/plugin/tuner/tuner_v3.h to
// tuner_v6.h and nccl_tuner.h).
#pragma once

#include "bindings/nccl_plugins/plugin_abi.h"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {

enum ncclFunc_t {
  ncclFuncBroadcast = 0,
  ncclFuncReduce = 1,
  ncclFuncAllGather = 2,
  ncclFuncReduceScatter = 3,
  ncclFuncAllReduce = 4,
};

inline constexpr int NCCL_ALGO_TREE = 0;
inline constexpr int NCCL_ALGO_RING = 1;
inline constexpr int NCCL_ALGO_NVLS = 4;
inline constexpr int NCCL_NUM_ALGORITHMS = 7;
inline constexpr int NCCL_PROTO_LL = 0;
inline constexpr int NCCL_PROTO_LL128 = 1;
inline constexpr int NCCL_PROTO_SIMPLE = 2;
inline constexpr int NCCL_NUM_PROTOCOLS = 3;
inline constexpr float NCCL_ALGO_PROTO_IGNORE = -1;

// Information that this tuner does not use.
struct ncclNvlDomainInfo_t;
struct ncclTunerConstants_t;

struct ncclTuner_v3_t {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, ncclDebugLogger_t log, void** context);
  // Changes NCCL's table of times. The table is actually float[algorithms][protocols], whatever its
  // type says.
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t function, size_t bytes, int pipelined,
                              float** table, int algorithms, int protocols, int* channels);
  ncclResult_t (*destroy)(void* context);
};

struct ncclTuner_v4_t {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, ncclDebugLogger_t log, void** context);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t function, size_t bytes, int pipelined,
                              float** table, int algorithms, int protocols, int registered,
                              int* channels);
  ncclResult_t (*destroy)(void* context);
};

struct ncclTuner_v5_t {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes,
                       ncclDebugLogger_t log, ncclNvlDomainInfo_t* domains,
                       ncclTunerConstants_t* constants);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t function, size_t bytes, int pipelined,
                              float** table, int algorithms, int protocols, int registered,
                              int* channels);
  ncclResult_t (*finalize)(void* context);
};

struct ncclTuner_v6_t {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, size_t ranks, size_t nodes,
                       ncclDebugLogger_t log, ncclNvlDomainInfo_t* domains,
                       ncclTunerConstants_t* constants);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t function, size_t bytes, int pipelined,
                              float** table, int algorithms, int protocols, int registered,
                              int* channels);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*getChunkSize)(void* context, ncclFunc_t function, size_t bytes, int algorithm,
                               int protocol, int channels, size_t* chunk);  // `chunk` may be null
};
}
// NOLINTEND(readability-identifier-naming)
