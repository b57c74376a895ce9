// Calls a network plugin as NCCL's core does, with one interface for all versions.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "bindings/nccl_plugins/net_abi.h"
#include "tests/bindings/nccl_plugins/plugin_host.h"

namespace tutti::testing {

using HandleBytes = std::array<std::byte, NCCL_NET_HANDLE_MAXSIZE>;

// Device properties common to all versions.
struct DeviceProperties {
  std::string name;
  int ptr_support = 0;
  int mbits = 0;
  int most_comms = 0;
  int most_receives = 0;
  size_t most_bytes = 0;  // 0: the version has no such field
};

class Net {
 public:
  virtual ~Net() = default;
  virtual const char* name() const = 0;
  virtual ncclResult_t init() = 0;
  virtual ncclResult_t finalize() = 0;
  virtual ncclResult_t devices(int* count) = 0;
  virtual ncclResult_t properties(int device, DeviceProperties* properties) = 0;
  virtual ncclResult_t listen(int device, HandleBytes& handle, void** listener) = 0;
  virtual ncclResult_t connect(int device, HandleBytes& handle, void** sender) = 0;
  virtual ncclResult_t accept(void* listener, void** receiver) = 0;
  virtual ncclResult_t reg_mr(void* comm, void* data, size_t size, int type, void** memory) = 0;
  virtual ncclResult_t reg_dma_buf(void* comm, void* data, size_t size, int type,
                                   void** memory) = 0;
  virtual ncclResult_t dereg_mr(void* comm, void* memory) = 0;
  virtual ncclResult_t isend(void* sender, const void* data, size_t size, int tag,
                             void** request) = 0;
  // Posts one request that consists of `count` receives, all into `data`.
  virtual ncclResult_t irecv(void* receiver, void* data, size_t size, int tag, void** request,
                             int count = 1) = 0;
  virtual ncclResult_t iflush(void* receiver, void* data, int size, void** request) = 0;
  virtual ncclResult_t test(void* request, int* done, int* size) = 0;
  virtual ncclResult_t close_send(void* sender) = 0;
  virtual ncclResult_t close_recv(void* receiver) = 0;
  virtual ncclResult_t close_listen(void* listener) = 0;
  virtual bool has_offloads() const = 0;
};

// Returns the plugin's interface of this version, or null if the library lacks it.
std::unique_ptr<Net> make_net(const Library& library, int version);

}  // namespace tutti::testing
