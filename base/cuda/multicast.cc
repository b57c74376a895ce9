#include "base/cuda/multicast.h"

#include "base/cuda/api.h"
#include "base/error.h"
#include "base/text.h"

namespace tutti::cuda {
namespace {

Error no_multicast(int device, const std::string& cause) {
  return Error(ErrorCode::unsupported, cat("GPU ", device, " does not support multicast"),
               {.cause = cause, .remedy = "use an algorithm without multicast"});
}

// Returns the context's device; throws if it does not support multicast.
CUdevice multicast_device(const Context& context) {
  const int ordinal = context.ordinal();
  if (!device_info(ordinal).has_multicast) {
    throw no_multicast(ordinal, "the GPU is older than Hopper, or not connected by NVSwitches");
  }
  CUdevice device = 0;
  api().device_get(&device, ordinal);
  return device;
}

}  // namespace

size_t round_up_for_multicast(const Context& context, size_t bytes) {
  const std::vector<Sharing> sharings = sharings_of(context.ordinal());
  if (sharings.empty() || !device_info(context.ordinal()).has_multicast) return bytes;
  const CurrentContext current(context);
  const CUmulticastObjectProp properties{
      .numDevices = 2,
      .size = bytes,
      .handleTypes = static_cast<unsigned>(handle_type(sharings.front())),
      .flags = 0};
  size_t granularity = 0;
  const CUresult result = multicast_api().get_granularity.result(&granularity, &properties,
                                                                 CU_MULTICAST_GRANULARITY_MINIMUM);
  return result == CUDA_SUCCESS ? round_up(bytes, granularity) : bytes;
}

Multicast::Multicast(const Context& context, int devices, size_t bytes)
    : context_(context), device_(multicast_device(context)) {
  bool is_created = false;
  for (const Sharing sharing : sharings_of(context.ordinal())) {
    is_created = create(devices, bytes, sharing);
    if (is_created) break;
  }
  if (!is_created) {
    throw no_multicast(context.ordinal(),
                       "no handle of its memory can be shared with other processes");
  }
  add_device();
}

Multicast::Multicast(const Context& context, const ExportedMulticast& exported)
    : context_(context),
      device_(multicast_device(context)),
      handle_(import_handle(context, exported.handle)),
      exported_(exported) {
  add_device();
}

// Creates and exports the object. Returns false if CUDA refuses this way of sharing.
bool Multicast::create(int devices, size_t bytes, Sharing sharing) {
  const CurrentContext current(context_);
  CUmulticastObjectProp properties{.numDevices = static_cast<unsigned>(devices),
                                   .size = bytes,
                                   .handleTypes = static_cast<unsigned>(handle_type(sharing)),
                                   .flags = 0};
  size_t granularity = 0;
  multicast_api().get_granularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM);
  properties.size = round_up(bytes, granularity);
  CUmemGenericAllocationHandle made = 0;
  const CUresult result = multicast_api().create.result(&made, &properties);
  if (is_refused(result)) return false;
  if (result != CUDA_SUCCESS) throw failure(multicast_api().create.name(), result);
  handle_ = AllocationHandle(context_, made);
  exported_handle_ = ExportedHandle(handle_, sharing);
  exported_ = {
      .size = properties.size, .granularity = granularity, .handle = exported_handle_.shareable()};
  return true;
}

void Multicast::add_device() {
  const CurrentContext current(context_);
  multicast_api().add_device(handle_.get(), device_);
}

void Multicast::bind(const AllocationHandle& memory, size_t bytes) {
  if (!memory || bytes < size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("a multicast object of ", size(), " bytes cannot bind ", bytes,
                    " bytes of memory", memory ? "" : " from cudaMalloc"),
                {.cause = "the memory is too small, or its device does not support virtual memory "
                          "management",
                 .remedy = "allocate SharedMemory of the object's size()"});
  }
  const CurrentContext current(context_);
  multicast_api().bind_mem(handle_.get(), 0, memory.get(), 0, size(), 0);
  unbind_ = freed_in(context_, [object = handle_.get(), device = device_, bytes = size()] {
    multicast_api().unbind.result(object, device, 0, bytes);
  });
  mapping_ = Mapping(context_, handle_, size(), exported_.granularity);
}

}  // namespace tutti::cuda
