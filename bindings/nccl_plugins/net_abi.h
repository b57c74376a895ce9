// The ABI of NCCL's network plugins, versions 8 to 12 (src/include/plugin/net/net_v8.h to net_v12.h
// and nccl_device/net_device.h). NCCL 2.20 and newer look for the highest version that they
// support.
#pragma once

#include "bindings/nccl_plugins/plugin_abi.h"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {

inline constexpr size_t NCCL_NET_HANDLE_MAXSIZE = 128;
inline constexpr int NCCL_NET_MAX_REQUESTS = 32;
inline constexpr int NCCL_PTR_HOST = 1;
inline constexpr size_t NCCL_MAX_NET_SIZE_BYTES = size_t{1} << 40;
inline constexpr int NCCL_NET_DEVICE_HOST = 0;
inline constexpr int16_t NCCL_NET_ID_UNDEF = -1;

// Handle of GPU-driven networks, which this plugin does not support.
struct ncclNetDeviceHandle_t;

struct ncclNetVDeviceProps_v9_t {  // until v11
  int ndevs;
  int devs[4];
};
struct ncclNetVDeviceProps_v12_t {
  int ndevs;
  int devs[8];
};

struct ncclNetCommConfig_t {
  int trafficClass;
};

struct ncclNetProperties_v8_t {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;  // in Mbit/s
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};

struct ncclNetProperties_v9_t {  // also v10
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v9_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
};

struct ncclNetProperties_v11_t {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v9_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
};

struct ncclNetProperties_v12_t {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v12_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
};

struct ncclNetCommAttr_t {
  int32_t maxConcurrentPeers;
  int32_t minConcurrentPeers;
  int32_t maxFlowsPerPeer;
  int32_t minFlowsPerPeer;
};
struct ncclNetAttr_t {
  ncclNetCommAttr_t sendCommAttr;
  ncclNetCommAttr_t recvCommAttr;
  uint32_t op;
  uint32_t algo;
  uint32_t proto;
};

struct ncclNet_v8_t {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v8_t* properties);
  ncclResult_t (*listen)(int device, void* handle, void** listener);
  ncclResult_t (*connect)(int device, void* handle, void** sender, ncclNetDeviceHandle_t** offload);
  ncclResult_t (*accept)(void* listener, void** receiver, ncclNetDeviceHandle_t** offload);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset,
                              int fd, void** memory);
  ncclResult_t (*deregMr)(void* comm, void* memory);
  ncclResult_t (*isend)(void* sender, void* data, int size, int tag, void* memory, void** request);
  ncclResult_t (*irecv)(void* receiver, int n, void** data, int* sizes, int* tags, void** memories,
                        void** request);
  ncclResult_t (*iflush)(void* receiver, int n, void** data, int* sizes, void** memories,
                         void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*closeSend)(void* sender);
  ncclResult_t (*closeRecv)(void* receiver);
  ncclResult_t (*closeListen)(void* listener);
  ncclResult_t (*getDeviceMr)(void* comm, void* memory, void** of_device);
  ncclResult_t (*irecvConsumed)(void* receiver, int n, void* request);
};

struct ncclNet_v9_t {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v9_t* properties);
  ncclResult_t (*listen)(int device, void* handle, void** listener);
  ncclResult_t (*connect)(int device, void* handle, void** sender, ncclNetDeviceHandle_t** offload);
  ncclResult_t (*accept)(void* listener, void** receiver, ncclNetDeviceHandle_t** offload);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset,
                              int fd, void** memory);
  ncclResult_t (*deregMr)(void* comm, void* memory);
  ncclResult_t (*isend)(void* sender, void* data, size_t size, int tag, void* memory,
                        void** request);
  ncclResult_t (*irecv)(void* receiver, int n, void** data, size_t* sizes, int* tags,
                        void** memories, void** request);
  ncclResult_t (*iflush)(void* receiver, int n, void** data, int* sizes, void** memories,
                         void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*closeSend)(void* sender);
  ncclResult_t (*closeRecv)(void* receiver);
  ncclResult_t (*closeListen)(void* listener);
  ncclResult_t (*getDeviceMr)(void* comm, void* memory, void** of_device);
  ncclResult_t (*irecvConsumed)(void* receiver, int n, void* request);
  ncclResult_t (*makeVDevice)(int* device, ncclNetVDeviceProps_v9_t* properties);
};

struct ncclNet_v10_t {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t log, ncclProfilerCallback_t profiler);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v9_t* properties);
  ncclResult_t (*listen)(int device, void* handle, void** listener);
  ncclResult_t (*connect)(int device, ncclNetCommConfig_t* config, void* handle, void** sender,
                          ncclNetDeviceHandle_t** offload);
  ncclResult_t (*accept)(void* listener, void** receiver, ncclNetDeviceHandle_t** offload);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset,
                              int fd, void** memory);
  ncclResult_t (*deregMr)(void* comm, void* memory);
  ncclResult_t (*isend)(void* sender, void* data, size_t size, int tag, void* memory, void* event,
                        void** request);
  ncclResult_t (*irecv)(void* receiver, int n, void** data, size_t* sizes, int* tags,
                        void** memories, void** events, void** request);
  ncclResult_t (*iflush)(void* receiver, int n, void** data, int* sizes, void** memories,
                         void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*closeSend)(void* sender);
  ncclResult_t (*closeRecv)(void* receiver);
  ncclResult_t (*closeListen)(void* listener);
  ncclResult_t (*getDeviceMr)(void* comm, void* memory, void** of_device);
  ncclResult_t (*irecvConsumed)(void* receiver, int n, void* request);
  ncclResult_t (*makeVDevice)(int* device, ncclNetVDeviceProps_v9_t* properties);
};
}

// v11 and v12 differ only in these two type parameters.
template <typename Properties, typename VDeviceProps>
struct ncclNet_v11_or_later_t {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, ncclNetCommConfig_t* config,
                       ncclDebugLogger_t log, ncclProfilerCallback_t profiler);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, Properties* properties);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listener);
  ncclResult_t (*connect)(void* context, int device, void* handle, void** sender,
                          ncclNetDeviceHandle_t** offload);
  ncclResult_t (*accept)(void* listener, void** receiver, ncclNetDeviceHandle_t** offload);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** memory);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset,
                              int fd, void** memory);
  ncclResult_t (*deregMr)(void* comm, void* memory);
  ncclResult_t (*isend)(void* sender, void* data, size_t size, int tag, void* memory, void* event,
                        void** request);
  ncclResult_t (*irecv)(void* receiver, int n, void** data, size_t* sizes, int* tags,
                        void** memories, void** events, void** request);
  ncclResult_t (*iflush)(void* receiver, int n, void** data, int* sizes, void** memories,
                         void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*closeSend)(void* sender);
  ncclResult_t (*closeRecv)(void* receiver);
  ncclResult_t (*closeListen)(void* listener);
  ncclResult_t (*getDeviceMr)(void* comm, void* memory, void** of_device);
  ncclResult_t (*irecvConsumed)(void* receiver, int n, void* request);
  ncclResult_t (*makeVDevice)(int* device, VDeviceProps* properties);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*setNetAttr)(void* context, ncclNetAttr_t* attributes);
};
using ncclNet_v11_t = ncclNet_v11_or_later_t<ncclNetProperties_v11_t, ncclNetVDeviceProps_v9_t>;
using ncclNet_v12_t = ncclNet_v11_or_later_t<ncclNetProperties_v12_t, ncclNetVDeviceProps_v12_t>;
// NOLINTEND(readability-identifier-naming)
