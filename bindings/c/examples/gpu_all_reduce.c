/* Runs all-reduces in GPU memory, with one GPU per rank. The memory is a window, so there are no
 * copies.
 *
 *   cc gpu_all_reduce.c -o gpu_all_reduce $(pkg-config --cflags --libs tutti) \
 *      -I/usr/local/cuda/include -lcuda
 *   tutti run -n 8 -- ./gpu_all_reduce
 *
 * The program can also use the CUDA runtime: a cudaStream_t is a CUstream, and
 * tutti_register_window also accepts memory from cudaMalloc.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

static void cuda_ok(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: CUDA error %d\n", what, (int)result);
  exit(1);
}

static void tutti_ok(tutti_status_t status, const char* what) {
  if (status == TUTTI_OK) return;
  fprintf(stderr, "%s: %s\n", what, tutti_error_text());
  exit(1);
}

int main(void) {
  enum { kCount = 1 << 18, kSteps = 3 };
  const size_t bytes = kCount * sizeof(float);
  tutti_comm_t* world = NULL;
  tutti_ok(tutti_init(&world, NULL), "tutti_init");
  const int rank = tutti_rank(world);
  const int size = tutti_size(world);

  int devices = 0;
  CUdevice device = 0;
  CUcontext context = NULL;
  CUstream stream = NULL;
  cuda_ok(cuInit(0), "cuInit");
  cuda_ok(cuDeviceGetCount(&devices), "cuDeviceGetCount");
  cuda_ok(cuDeviceGet(&device, rank % devices), "cuDeviceGet");
  cuda_ok(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  cuda_ok(cuCtxPushCurrent(context), "cuCtxPushCurrent");
  cuda_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

  void* data = NULL;
  tutti_ok(tutti_alloc_on_device(world, bytes, &data), "tutti_alloc_on_device");
  tutti_ok(tutti_register_window(world, data, bytes), "tutti_register_window");

  float* values = malloc(bytes);
  if (values == NULL) return 1;
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + 1);
  const CUdeviceptr host = (CUdeviceptr)(uintptr_t)values;
  const CUdeviceptr memory = (CUdeviceptr)(uintptr_t)data;
  cuda_ok(cuMemcpyAsync(memory, host, bytes, stream), "cuMemcpyAsync");

  /* The calls return once they are enqueued; the GPU executes them in stream order. */
  tutti_buffer_t buffer = tutti_host(data, kCount, TUTTI_F32);
  buffer.space = TUTTI_DEVICE;
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.stream = stream;
  for (int step = 0; step < kSteps; ++step) {
    tutti_ok(tutti_all_reduce(world, buffer, buffer, TUTTI_AVG, &options), "tutti_all_reduce");
  }
  cuda_ok(cuMemcpyAsync(host, memory, bytes, stream), "cuMemcpyAsync");
  cuda_ok(cuStreamSynchronize(stream), "cuStreamSynchronize");

  const float mean = (float)(size + 1) / 2;
  for (int i = 0; i < kCount; ++i) {
    if (values[i] == mean) continue;
    fprintf(stderr, "rank %d: element %d is %g instead of %g\n", rank, i, values[i], mean);
    return 1;
  }
  printf("rank %d of %d: the mean is %g\n", rank, size, values[0]);

  tutti_ok(tutti_deregister_window(world, data), "tutti_deregister_window");
  tutti_ok(tutti_free(world, data), "tutti_free");
  cuda_ok(cuStreamDestroy(stream), "cuStreamDestroy");
  tutti_destroy(world);
  cuda_ok(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  free(values);
  return 0;
}
