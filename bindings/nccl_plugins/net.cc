// The network plugin: one implementation, and for each version of NCCL's interface the struct that
// NCCL looks up.
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/text.h"
#include "bindings/nccl_plugins/host_log.h"
#include "bindings/nccl_plugins/interfaces.h"
#include "bindings/nccl_plugins/net_abi.h"
#include "bindings/nccl_plugins/net_link.h"
#include "bindings/nccl_plugins/net_meeting.h"

namespace tutti::nccl {

namespace {

constexpr char kName[] = "Tutti";
// Maximum number of connections. Each uses descriptors, whose limit is raised as far as possible;
// NCCL's own sockets report the same number.
constexpr int kMostComms = 65536;

template <typename Body>
ncclResult_t net(Body&& body) noexcept {
  return guarded(NCCL_INIT | NCCL_NET, std::forward<Body>(body));
}

const std::vector<Interface>& interfaces() {
  static const std::vector<Interface> found = find_interfaces();
  return found;
}

const Interface& interface_of(int device) {
  if (device >= 0 && static_cast<size_t>(device) < interfaces().size()) {
    return interfaces()[static_cast<size_t>(device)];
  }
  throw Error(ErrorCode::invalid_argument,
              cat("network device ", device, " does not exist: there are ", interfaces().size()));
}

// Returns the object as a void*, which NCCL stores.
template <typename T>
void* hand_out(std::unique_ptr<T> owned) {
  return owned.release();
}
template <typename T>
ncclResult_t take_back(void* owned) {
  return net([&] { std::unique_ptr<T>(static_cast<T*>(owned)).reset(); });
}

void start(ncclDebugLogger_t log) {
  set_logger(log);
  std::string names;
  for (const Interface& interface : interfaces()) {
    names += cat(names.empty() ? "" : ", ", interface.name, " (", interface.mbits, " Mbit/s)");
  }
  inform(NCCL_INIT | NCCL_NET, cat("network interfaces: ", names.empty() ? "none" : names));
}

ncclResult_t init_of_v8(ncclDebugLogger_t log) {
  return net([&] { start(log); });
}
ncclResult_t init_of_v10(ncclDebugLogger_t log, ncclProfilerCallback_t) { return init_of_v8(log); }
ncclResult_t init_of_v11(void** context, uint64_t, ncclNetCommConfig_t*, ncclDebugLogger_t log,
                         ncclProfilerCallback_t) {
  *context = nullptr;
  return init_of_v8(log);
}
ncclResult_t finalize(void*) { return ncclSuccess; }
ncclResult_t set_attributes(void*, ncclNetAttr_t*) { return ncclSuccess; }

ncclResult_t devices(int* count) {
  return net([&] { *count = static_cast<int>(interfaces().size()); });
}

template <typename Properties>
ncclResult_t properties(int device, Properties* properties) {
  return net([&] {
    const Interface& interface = interface_of(device);
    *properties = {};
    // The casts are safe, because NCCL only reads the names.
    properties->name = const_cast<char*>(interface.name.c_str());
    if (!interface.pci_path.empty()) {
      properties->pciPath = const_cast<char*>(interface.pci_path.c_str());
    }
    properties->guid = static_cast<uint64_t>(device);
    properties->ptrSupport = NCCL_PTR_HOST;
    properties->regIsGlobal = 1;
    properties->speed = interface.mbits;
    properties->maxComms = kMostComms;
    properties->maxRecvs = 1;
    properties->netDeviceType = NCCL_NET_DEVICE_HOST;
    if constexpr (requires { properties->vProps; }) {
      properties->vProps.ndevs = 1;
      properties->vProps.devs[0] = device;
      properties->maxP2pBytes = NCCL_MAX_NET_SIZE_BYTES;
      properties->maxCollBytes = NCCL_MAX_NET_SIZE_BYTES;
    }
    if constexpr (requires { properties->maxMultiRequestSize; }) {
      properties->maxMultiRequestSize = 1;
    }
    if constexpr (requires { properties->railId; }) {
      properties->railId = NCCL_NET_ID_UNDEF;
      properties->planeId = NCCL_NET_ID_UNDEF;
    }
  });
}

// --- connections ---

ncclResult_t listen(int device, void* handle, void** listener) {
  return net([&] {
    auto made = std::make_unique<Listener>(interface_of(device).name);
    write_handle(made->handle(), handle);
    *listener = hand_out(std::move(made));
  });
}

ncclResult_t connect(int device, void* memory, void** sender, ncclNetDeviceHandle_t**) {
  return net([&] {
    *sender = nullptr;
    interface_of(device);
    Handle handle = read_handle(memory);
    std::unique_ptr<Connecting> connecting(std::exchange(handle.connecting, nullptr));
    write_handle(handle, memory);
    if (connecting == nullptr) connecting = std::make_unique<Connecting>(handle);
    if (auto streams = connecting->advance()) {
      *sender = hand_out(std::make_unique<Sender>(std::move(*streams)));
      return;
    }
    handle.connecting = connecting.release();
    write_handle(handle, memory);
  });
}

ncclResult_t accept(void* listener, void** receiver, ncclNetDeviceHandle_t**) {
  return net([&] {
    *receiver = nullptr;
    auto streams = static_cast<Listener*>(listener)->accept();
    if (streams) *receiver = hand_out(std::make_unique<Receiver>(std::move(*streams)));
  });
}

ncclResult_t listen_of_v11(void*, int device, void* handle, void** listener) {
  return listen(device, handle, listener);
}
ncclResult_t connect_of_v10(int device, ncclNetCommConfig_t*, void* handle, void** sender,
                            ncclNetDeviceHandle_t** offload) {
  return connect(device, handle, sender, offload);
}
ncclResult_t connect_of_v11(void*, int device, void* handle, void** sender,
                            ncclNetDeviceHandle_t** offload) {
  return connect(device, handle, sender, offload);
}

// --- memory: host memory needs no registration for sockets ---

ncclResult_t register_memory(void*, void*, size_t, int type, void** memory) {
  return net([&] {
    *memory = nullptr;
    if (type == NCCL_PTR_HOST) return;
    throw Error(ErrorCode::unsupported, "this network supports host memory only",
                {.remedy = "leave NCCL_NET_GDR_LEVEL and the like unset: NCCL then copies"});
  });
}
ncclResult_t register_dma_buffer(void* comm, void* data, size_t size, int type, uint64_t, int,
                                 void** memory) {
  return register_memory(comm, data, size, type, memory);
}
ncclResult_t deregister_memory(void*, void*) { return ncclSuccess; }

// --- messages ---

ncclResult_t send(void* sender, void* data, size_t size, int tag, void*, void** request) {
  return net([&] {
    *request = nullptr;
    *request = static_cast<Sender*>(sender)->offer(data, size, tag);
  });
}
ncclResult_t send_of_v8(void* sender, void* data, int size, int tag, void* memory, void** request) {
  return send(sender, data, static_cast<size_t>(size), tag, memory, request);
}
ncclResult_t send_of_v10(void* sender, void* data, size_t size, int tag, void* memory, void*,
                         void** request) {
  return send(sender, data, size, tag, memory, request);
}

template <typename Size>
ncclResult_t receive(void* receiver, int n, void** data, Size* sizes, int* tags, void**,
                     void** request) {
  return net([&] {
    *request = nullptr;
    if (n != 1) {
      throw Error(ErrorCode::invalid_argument,
                  cat("a receive of ", n, " messages at once is not supported"),
                  {.cause = "this network reports maxRecvs = 1"});
    }
    *request =
        static_cast<Receiver*>(receiver)->post(data[0], static_cast<uint64_t>(sizes[0]), tags[0]);
  });
}
ncclResult_t receive_of_v10(void* receiver, int n, void** data, size_t* sizes, int* tags,
                            void** memories, void**, void** request) {
  return receive(receiver, n, data, sizes, tags, memories, request);
}

// Does nothing, because data received into host memory is already visible.
ncclResult_t flush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return ncclSuccess;
}

ncclResult_t test(void* request, int* done, int* sizes) {
  return net([&] {
    *done = 0;
    auto& transfer = *static_cast<Transfer*>(request);
    const std::optional<uint64_t> bytes = transfer.link->test(transfer);
    *done = bytes ? 1 : 0;
    if (bytes && sizes != nullptr) *sizes = static_cast<int>(*bytes);
  });
}

// Returns the members that all versions have. Each version adds a few more.
template <typename Net>
constexpr Net common() {
  Net net{};
  net.name = kName;
  net.init = nullptr;
  net.devices = devices;
  net.getProperties = properties;
  net.accept = accept;
  net.regMr = register_memory;
  net.regMrDmaBuf = register_dma_buffer;
  net.deregMr = deregister_memory;
  net.iflush = flush;
  net.test = test;
  net.closeSend = take_back<Sender>;
  net.closeRecv = take_back<Receiver>;
  net.closeListen = take_back<Listener>;
  // The other members are null, as in NCCL's own sockets: no GPU-driven network (getDeviceMr,
  // irecvConsumed), no virtual devices (makeVDevice).
  return net;
}

template <typename Net>
constexpr Net of_v8_or_v9() {
  Net net = common<Net>();
  net.init = init_of_v8;
  net.listen = listen;
  net.connect = connect;
  net.irecv = receive;
  return net;
}

constexpr ncclNet_v8_t of_v8() {
  auto net = of_v8_or_v9<ncclNet_v8_t>();
  net.isend = send_of_v8;
  return net;
}

constexpr ncclNet_v9_t of_v9() {
  auto net = of_v8_or_v9<ncclNet_v9_t>();
  net.isend = send;
  return net;
}

constexpr ncclNet_v10_t of_v10() {
  auto net = common<ncclNet_v10_t>();
  net.init = init_of_v10;
  net.listen = listen;
  net.connect = connect_of_v10;
  net.isend = send_of_v10;
  net.irecv = receive_of_v10;
  return net;
}

template <typename Net>
constexpr Net of_v11_or_later() {
  Net net = common<Net>();
  net.init = init_of_v11;
  net.listen = listen_of_v11;
  net.connect = connect_of_v11;
  net.isend = send_of_v10;
  net.irecv = receive_of_v10;
  net.finalize = finalize;
  net.setNetAttr = set_attributes;
  return net;
}

}  // namespace

}  // namespace tutti::nccl

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {
extern const ncclNet_v8_t ncclNetPlugin_v8 = tutti::nccl::of_v8();
extern const ncclNet_v9_t ncclNetPlugin_v9 = tutti::nccl::of_v9();
extern const ncclNet_v10_t ncclNetPlugin_v10 = tutti::nccl::of_v10();
extern const ncclNet_v11_t ncclNetPlugin_v11 = tutti::nccl::of_v11_or_later<ncclNet_v11_t>();
extern const ncclNet_v12_t ncclNetPlugin_v12 = tutti::nccl::of_v11_or_later<ncclNet_v12_t>();
}
// NOLINTEND(readability-identifier-naming)
