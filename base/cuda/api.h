// CUDA's driver, found at run time: building needs no CUDA, and the program runs where
// there is no GPU. Each driver function is a member of the same name; calling it
// throws if the driver refuses:
//
//     api().stream_synchronize(stream);                        // throws Error(system, ...)
//     if (api().stream_query.result(stream) == CUDA_SUCCESS)   // or inspect the CUresult
//
// As everywhere in CUDA, most calls need a current context (device.h).
#pragma once

#include <cstddef>
#include <string>

#include "base/cuda/abi.h"
#include "base/error.h"

namespace tutti::cuda {

// libcuda.so.1, which stays loaded for the life of the process.
class Library {
 public:
  // Loads the library. `oldest`: the CUDA version whose driver has all required functions. Throws
  // Error(unsupported) that says what to install.
  explicit Library(const char* oldest);
  void* find(const char* name) const;  // Throws Error(unsupported) if the driver is too old.

 private:
  const char* oldest_;
  void* handle_;
};

// Builds the error for a `call` that did not return CUDA_SUCCESS: its name, CUDA's description, and
// the likely cause and remedy if known.
Error failure(const char* call, CUresult result);

template <typename... Arguments>
class Call {
 public:
  Call(const Library& library, const char* name)
      : name_(name), function_(reinterpret_cast<Function>(library.find(name))) {}

  void operator()(Arguments... arguments) const {
    const CUresult result = function_(arguments...);
    if (result != CUDA_SUCCESS) throw failure(name_, result);
  }
  // Calls the function and returns its result instead of throwing: for calls whose failure is
  // expected, and for destructors.
  CUresult result(Arguments... arguments) const noexcept { return function_(arguments...); }
  const char* name() const { return name_; }

 private:
  using Function = CUresult (*)(Arguments...);
  const char* name_;
  Function function_;
};

// The functions by the names that libcuda.so.1 exports, which may differ from cuda.h: cuda.h
// defines cuMemAlloc as cuMemAlloc_v2. Drivers of CUDA 11.7 and newer have all of them.
class Api {
  Library library_{"11.7 (515)"};

 public:
  Call<unsigned> init{library_, "cuInit"};
  Call<CUresult, const char**> get_error_name{library_, "cuGetErrorName"};
  Call<CUresult, const char**> get_error_string{library_, "cuGetErrorString"};
  Call<int*> driver_get_version{library_, "cuDriverGetVersion"};

  Call<int*> device_get_count{library_, "cuDeviceGetCount"};
  Call<CUdevice*, int> device_get{library_, "cuDeviceGet"};
  Call<char*, int, CUdevice> device_get_name{library_, "cuDeviceGetName"};
  Call<CUuuid*, CUdevice> device_get_uuid{library_, "cuDeviceGetUuid_v2"};
  Call<char*, int, CUdevice> device_get_pci_bus_id{library_, "cuDeviceGetPCIBusId"};
  Call<int*, CUdevice_attribute, CUdevice> device_get_attribute{library_, "cuDeviceGetAttribute"};
  Call<size_t*, CUdevice> device_total_mem{library_, "cuDeviceTotalMem_v2"};
  Call<int*, CUdevice, CUdevice> device_can_access_peer{library_, "cuDeviceCanAccessPeer"};

  Call<CUcontext*, CUdevice> primary_retain{library_, "cuDevicePrimaryCtxRetain"};
  Call<CUdevice> primary_release{library_, "cuDevicePrimaryCtxRelease_v2"};
  Call<CUcontext> ctx_push_current{library_, "cuCtxPushCurrent_v2"};
  Call<CUcontext*> ctx_pop_current{library_, "cuCtxPopCurrent_v2"};
  Call<CUcontext*> ctx_get_current{library_, "cuCtxGetCurrent"};
  Call<CUdevice*> ctx_get_device{library_, "cuCtxGetDevice"};
  Call<> ctx_synchronize{library_, "cuCtxSynchronize"};
  Call<CUcontext, unsigned> ctx_enable_peer_access{library_, "cuCtxEnablePeerAccess"};

  Call<CUdeviceptr*, size_t> mem_alloc{library_, "cuMemAlloc_v2"};
  Call<CUdeviceptr> mem_free{library_, "cuMemFree_v2"};
  Call<void**, size_t, unsigned> mem_host_alloc{library_, "cuMemHostAlloc"};
  Call<void*> mem_free_host{library_, "cuMemFreeHost"};
  Call<CUdeviceptr*, void*, unsigned> mem_host_get_device_pointer{library_,
                                                                  "cuMemHostGetDevicePointer_v2"};
  Call<CUdeviceptr*, size_t*, CUdeviceptr> mem_get_address_range{library_,
                                                                 "cuMemGetAddressRange_v2"};
  Call<unsigned, CUpointer_attribute*, void**, CUdeviceptr> pointer_get_attributes{
      library_, "cuPointerGetAttributes"};
  Call<CUdeviceptr, CUdeviceptr, size_t, CUstream> memcpy_async{library_, "cuMemcpyAsync"};
  Call<CUdeviceptr, unsigned char, size_t, CUstream> memset_d8_async{library_, "cuMemsetD8Async"};
  Call<CUipcMemHandle*, CUdeviceptr> ipc_get_mem_handle{library_, "cuIpcGetMemHandle"};
  Call<CUdeviceptr*, CUipcMemHandle, unsigned> ipc_open_mem_handle{library_,
                                                                   "cuIpcOpenMemHandle_v2"};
  Call<CUdeviceptr> ipc_close_mem_handle{library_, "cuIpcCloseMemHandle"};

  Call<size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags>
      mem_get_allocation_granularity{library_, "cuMemGetAllocationGranularity"};
  Call<CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long>
      mem_create{library_, "cuMemCreate"};
  Call<CUmemGenericAllocationHandle> mem_release{library_, "cuMemRelease"};
  Call<CUmemGenericAllocationHandle*, void*> mem_retain_allocation_handle{
      library_, "cuMemRetainAllocationHandle"};
  Call<CUmemAllocationProp*, CUmemGenericAllocationHandle> mem_get_allocation_properties{
      library_, "cuMemGetAllocationPropertiesFromHandle"};
  Call<void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long>
      mem_export_to_shareable_handle{library_, "cuMemExportToShareableHandle"};
  Call<CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType>
      mem_import_from_shareable_handle{library_, "cuMemImportFromShareableHandle"};
  Call<CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long> mem_address_reserve{
      library_, "cuMemAddressReserve"};
  Call<CUdeviceptr, size_t> mem_address_free{library_, "cuMemAddressFree"};
  Call<CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long> mem_map{
      library_, "cuMemMap"};
  Call<CUdeviceptr, size_t> mem_unmap{library_, "cuMemUnmap"};
  Call<CUdeviceptr, size_t, const CUmemAccessDesc*, size_t> mem_set_access{library_,
                                                                           "cuMemSetAccess"};

  Call<CUstream*, unsigned> stream_create{library_, "cuStreamCreate"};
  Call<CUstream> stream_destroy{library_, "cuStreamDestroy_v2"};
  Call<CUstream> stream_synchronize{library_, "cuStreamSynchronize"};
  Call<CUstream> stream_query{library_, "cuStreamQuery"};
  Call<CUstream, CUevent, unsigned> stream_wait_event{library_, "cuStreamWaitEvent"};
  Call<CUstream, CUcontext*> stream_get_ctx{library_, "cuStreamGetCtx"};
  Call<CUstream, CUhostFn, void*> launch_host_func{library_, "cuLaunchHostFunc"};
  Call<CUstream, CUdeviceptr, unsigned, unsigned> stream_wait_value{library_,
                                                                    "cuStreamWaitValue32_v2"};
  Call<CUstream, CUdeviceptr, unsigned, unsigned> stream_write_value{library_,
                                                                     "cuStreamWriteValue32_v2"};
  Call<CUevent*, unsigned> event_create{library_, "cuEventCreate"};
  Call<CUevent> event_destroy{library_, "cuEventDestroy_v2"};
  Call<CUevent, CUstream> event_record{library_, "cuEventRecord"};
  Call<CUevent> event_query{library_, "cuEventQuery"};
  Call<CUevent> event_synchronize{library_, "cuEventSynchronize"};
  Call<float*, CUevent, CUevent> event_elapsed_time{library_, "cuEventElapsedTime"};

  Call<CUstream, CUstreamCaptureStatus*> stream_is_capturing{library_, "cuStreamIsCapturing"};
  Call<CUstream, CUstreamCaptureMode> stream_begin_capture{library_, "cuStreamBeginCapture_v2"};
  Call<CUstream, CUgraph*> stream_end_capture{library_, "cuStreamEndCapture"};
  Call<CUstreamCaptureMode*> thread_exchange_capture_mode{library_,
                                                          "cuThreadExchangeStreamCaptureMode"};
  Call<CUgraph> graph_destroy{library_, "cuGraphDestroy"};
  Call<CUgraphExec*, CUgraph, unsigned long long> graph_instantiate{library_,
                                                                    "cuGraphInstantiateWithFlags"};
  Call<CUgraphExec, CUstream> graph_launch{library_, "cuGraphLaunch"};
  Call<CUgraphExec> graph_exec_destroy{library_, "cuGraphExecDestroy"};

  Call<CUmodule*, const void*> module_load_data{library_, "cuModuleLoadData"};
  Call<CUmodule> module_unload{library_, "cuModuleUnload"};
  Call<CUfunction*, CUmodule, const char*> module_get_function{library_, "cuModuleGetFunction"};
  Call<int*, CUfunction_attribute, CUfunction> func_get_attribute{library_, "cuFuncGetAttribute"};
  Call<CUfunction, CUfunction_attribute, int> func_set_attribute{library_, "cuFuncSetAttribute"};
  Call<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
       void**, void**>
      launch_kernel{library_, "cuLaunchKernel"};
};

// Functions that only drivers of CUDA 12.1 and newer have.
class MulticastApi {
  Library library_{"12.1 (530)"};

 public:
  Call<size_t*, const CUmulticastObjectProp*, CUmulticastGranularity_flags> get_granularity{
      library_, "cuMulticastGetGranularity"};
  Call<CUmemGenericAllocationHandle*, const CUmulticastObjectProp*> create{library_,
                                                                           "cuMulticastCreate"};
  Call<CUmemGenericAllocationHandle, CUdevice> add_device{library_, "cuMulticastAddDevice"};
  Call<CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,
       unsigned long long>
      bind_mem{library_, "cuMulticastBindMem"};
  Call<CUmemGenericAllocationHandle, CUdevice, size_t, size_t> unbind{library_,
                                                                      "cuMulticastUnbind"};
};

// Loads and initialises the driver on first use. Thread-safe. Throws Error(unsupported) if the
// driver is missing or unusable; a later call tries again.
const Api& api();
const MulticastApi& multicast_api();  // Throws as api() does.

// Returns true if the driver is installed, works, and has a device. The answer is cached per
// process.
bool available();

}  // namespace tutti::cuda
