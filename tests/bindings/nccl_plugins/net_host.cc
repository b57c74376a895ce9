#include "tests/bindings/nccl_plugins/net_host.h"

#include <tuple>
#include <type_traits>
#include <vector>

namespace tutti::testing {

namespace {

template <typename Function>
struct LastArgument;
template <typename... Arguments>
struct LastArgument<ncclResult_t (*)(int, Arguments...)> {
  using Type = std::tuple_element_t<sizeof...(Arguments) - 1, std::tuple<Arguments...>>;
};

template <typename Plugin, int kVersion>
class NetOf final : public Net {
  using Properties =
      std::remove_pointer_t<typename LastArgument<decltype(Plugin::getProperties)>::Type>;
  using Size = std::conditional_t<kVersion == 8, int, size_t>;

 public:
  explicit NetOf(const Plugin* plugin) : plugin_(plugin) {}

  const char* name() const override { return plugin_->name; }

  ncclResult_t init() override {
    if constexpr (kVersion >= 11) {
      ncclNetCommConfig_t config{.trafficClass = -1};
      return plugin_->init(&context_, 7, &config, log_of_host, nullptr);
    } else if constexpr (kVersion == 10) {
      return plugin_->init(log_of_host, nullptr);
    } else {
      return plugin_->init(log_of_host);
    }
  }

  ncclResult_t finalize() override {
    if constexpr (kVersion >= 11) {
      ncclNetAttr_t attributes{};
      const ncclResult_t result = plugin_->setNetAttr(context_, &attributes);
      return result != ncclSuccess ? result : plugin_->finalize(context_);
    }
    return ncclSuccess;
  }

  ncclResult_t devices(int* count) override { return plugin_->devices(count); }

  ncclResult_t properties(int device, DeviceProperties* told) override {
    Properties properties{};
    const ncclResult_t result = plugin_->getProperties(device, &properties);
    if (result != ncclSuccess) return result;
    *told = {.name = properties.name,
             .ptr_support = properties.ptrSupport,
             .mbits = properties.speed,
             .most_comms = properties.maxComms,
             .most_receives = properties.maxRecvs};
    if constexpr (kVersion >= 9) {
      told->most_bytes = properties.maxP2pBytes;
      if (properties.vProps.ndevs != 1 || properties.vProps.devs[0] != device) {
        return ncclInternalError;
      }
    }
    if constexpr (kVersion >= 12) {
      if (properties.railId != NCCL_NET_ID_UNDEF) return ncclInternalError;
    }
    return result;
  }

  ncclResult_t listen(int device, HandleBytes& handle, void** listener) override {
    if constexpr (kVersion >= 11) {
      return plugin_->listen(context_, device, handle.data(), listener);
    } else {
      return plugin_->listen(device, handle.data(), listener);
    }
  }

  ncclResult_t connect(int device, HandleBytes& handle, void** sender) override {
    ncclNetDeviceHandle_t* offload = nullptr;
    if constexpr (kVersion >= 11) {
      return plugin_->connect(context_, device, handle.data(), sender, &offload);
    } else if constexpr (kVersion == 10) {
      ncclNetCommConfig_t config{.trafficClass = -1};
      return plugin_->connect(device, &config, handle.data(), sender, &offload);
    } else {
      return plugin_->connect(device, handle.data(), sender, &offload);
    }
  }

  ncclResult_t accept(void* listener, void** receiver) override {
    ncclNetDeviceHandle_t* offload = nullptr;
    return plugin_->accept(listener, receiver, &offload);
  }

  ncclResult_t reg_mr(void* comm, void* data, size_t size, int type, void** memory) override {
    return plugin_->regMr(comm, data, size, type, memory);
  }
  ncclResult_t reg_dma_buf(void* comm, void* data, size_t size, int type, void** memory) override {
    return plugin_->regMrDmaBuf(comm, data, size, type, 0, -1, memory);
  }
  ncclResult_t dereg_mr(void* comm, void* memory) override {
    return plugin_->deregMr(comm, memory);
  }

  ncclResult_t isend(void* sender, const void* data, size_t size, int tag,
                     void** request) override {
    void* const from = const_cast<void*>(data);
    if constexpr (kVersion >= 10) {
      return plugin_->isend(sender, from, size, tag, nullptr, nullptr, request);
    } else {
      return plugin_->isend(sender, from, static_cast<Size>(size), tag, nullptr, request);
    }
  }

  ncclResult_t irecv(void* receiver, void* data, size_t size, int tag, void** request,
                     int count) override {
    const auto n = static_cast<size_t>(count);
    std::vector<void*> places(n, data);
    std::vector<Size> sizes(n, static_cast<Size>(size));
    std::vector<int> tags(n, tag);
    std::vector<void*> none(n, nullptr);
    if constexpr (kVersion >= 10) {
      return plugin_->irecv(receiver, count, places.data(), sizes.data(), tags.data(), none.data(),
                            none.data(), request);
    } else {
      return plugin_->irecv(receiver, count, places.data(), sizes.data(), tags.data(), none.data(),
                            request);
    }
  }

  ncclResult_t iflush(void* receiver, void* data, int size, void** request) override {
    void* memory = nullptr;
    return plugin_->iflush(receiver, 1, &data, &size, &memory, request);
  }
  ncclResult_t test(void* request, int* done, int* size) override {
    return plugin_->test(request, done, size);
  }
  ncclResult_t close_send(void* sender) override { return plugin_->closeSend(sender); }
  ncclResult_t close_recv(void* receiver) override { return plugin_->closeRecv(receiver); }
  ncclResult_t close_listen(void* listener) override { return plugin_->closeListen(listener); }

  bool has_offloads() const override {
    if (plugin_->getDeviceMr != nullptr || plugin_->irecvConsumed != nullptr) return true;
    if constexpr (kVersion >= 9) return plugin_->makeVDevice != nullptr;
    return false;
  }

 private:
  const Plugin* plugin_;
  void* context_ = nullptr;
};

template <typename Plugin, int kVersion>
std::unique_ptr<Net> make(const Library& library) {
  const auto* const plugin = library.find<Plugin>("ncclNetPlugin_v" + std::to_string(kVersion));
  if (plugin == nullptr) return nullptr;
  return std::make_unique<NetOf<Plugin, kVersion>>(plugin);
}

}  // namespace

std::unique_ptr<Net> make_net(const Library& library, int version) {
  switch (version) {
    case 8:
      return make<ncclNet_v8_t, 8>(library);
    case 9:
      return make<ncclNet_v9_t, 9>(library);
    case 10:
      return make<ncclNet_v10_t, 10>(library);
    case 11:
      return make<ncclNet_v11_t, 11>(library);
    case 12:
      return make<ncclNet_v12_t, 12>(library);
    default:
      return nullptr;
  }
}

}  // namespace tutti::testing
