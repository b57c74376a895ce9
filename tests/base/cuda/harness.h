// Fixture for the tests of streams and graphs: a device, its kernels, and words in device memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/module.h"
#include "base/cuda/stream.h"
#include "base/error.h"
#include "tests/support/fake_cuda/test_kernels.h"

namespace tutti::cuda {

// Returns the code and text of the Error that `act` throws, or ErrorCode::ok and "".
template <typename Act>
std::pair<ErrorCode, std::string> error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::ok, ""};
}

inline bool says(const std::pair<ErrorCode, std::string>& error, std::string_view text) {
  return error.second.find(text) != std::string::npos;
}

struct Gpu {
  explicit Gpu(int ordinal = 0) : context(ordinal) {}

  void fill(CUstream stream, const DeviceMemory& to, uint64_t value) const {
    launch(module.function("fill"), {.blocks = 2}, stream,
           testing::FillParameter{words(to), count(to), value});
  }
  void add(CUstream stream, const DeviceMemory& to, const DeviceMemory& from) const {
    launch(module.function("add"), {.blocks = 2}, stream,
           testing::AddParameter{words(to), words(from), count(to)});
  }
  void spin(CUstream stream, const PinnedMemory& flags) const {
    launch(module.function("spin"), {.threads = 1}, stream,
           testing::SpinParameter{word(flags, 0), word(flags, 1)});
  }
  // Waits for the work of the stream, and returns the contents of the memory.
  std::vector<uint64_t> read(CUstream stream, const DeviceMemory& from) const {
    std::vector<uint64_t> values(count(from));
    copy_async(values.data(), from.data(), from.size(), stream);
    synchronize(stream);
    return values;
  }

  static uint64_t* words(const DeviceMemory& memory) {
    return reinterpret_cast<uint64_t*>(memory.data());
  }
  static uint64_t count(const DeviceMemory& memory) { return memory.size() / sizeof(uint64_t); }
  static uint64_t* word(const PinnedMemory& memory, int i) {
    return reinterpret_cast<uint64_t*>(memory.device_data()) + i;
  }

  Context context;
  CurrentContext current{context};
  Module module{context, "an image"};
};

inline void await(const PinnedMemory& flags) {
  while (std::atomic_ref(*reinterpret_cast<uint64_t*>(flags.data())).load() == 0) {
  }
}
inline void release(const PinnedMemory& flags) {
  std::atomic_ref(*(reinterpret_cast<uint64_t*>(flags.data()) + 1)).store(1);
}

}  // namespace tutti::cuda
