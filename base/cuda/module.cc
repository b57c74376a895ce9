#include "base/cuda/module.h"

#include "base/cuda/api.h"
#include "base/error.h"
#include "base/text.h"

namespace tutti::cuda {
namespace {

int attribute(CUfunction function, CUfunction_attribute which) {
  int value = 0;
  api().func_get_attribute(&value, which, function);
  return value;
}

}  // namespace

FunctionInfo function_info(CUfunction function) {
  return {
      .registers = attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS),
      .local_bytes = static_cast<size_t>(attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)),
      .shared_bytes = static_cast<size_t>(attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)),
      .most_threads = attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
  };
}

void allow_shared_bytes(CUfunction function, size_t bytes) {
  api().func_set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                           static_cast<int>(bytes));
}

Module::Module(const Context& context, const void* image) : context_(context) {
  const CurrentContext current(context);
  api().module_load_data(&handle_, image);
  unload_ = freed_in(context, [module = handle_] { api().module_unload.result(module); });
}

CUfunction Module::function(const char* name) const {
  const CurrentContext current(context_);
  CUfunction function = nullptr;
  const CUresult result = api().module_get_function.result(&function, handle_, name);
  if (result == CUDA_ERROR_NOT_FOUND) {
    throw Error(
        ErrorCode::unsupported, cat("CUDA kernel ", name, " is missing from this build"),
        {.cause = "the kernels come from another version, or from a build without this kernel",
         .remedy = "rebuild Tutti completely"});
  }
  if (result != CUDA_SUCCESS) throw failure(api().module_get_function.name(), result);
  return function;
}

void launch(CUfunction function, const Grid& grid, CUstream stream, void** parameters) {
  api().launch_kernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared_bytes, stream,
                      parameters, nullptr);
}

}  // namespace tutti::cuda
