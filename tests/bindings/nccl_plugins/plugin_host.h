// The built library, opened as NCCL opens a plugin, and what NCCL hears of it.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/nccl_plugins/plugin_abi.h"

namespace tutti::testing {

class Library {
 public:
  explicit Library(const std::string& name = "libnccl-tutti.so");

  // Null where there is none.
  template <typename T>
  const T* find(const std::string& symbol) const {
    return static_cast<const T*>(::dlsym(handle_.get(), symbol.c_str()));
  }
  bool is_open() const { return handle_ != nullptr; }

 private:
  std::unique_ptr<void, int (*)(void*)> handle_;
};

// NCCL's logger, in its stead.
void log_of_host(ncclDebugLogLevel level, unsigned long flags, const char* file, int line,
                 const char* format, ...);
// The lines of a level since the last call.
std::vector<std::string> take_log(ncclDebugLogLevel level);

}  // namespace tutti::testing
