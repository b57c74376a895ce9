// The built library, opened as NCCL opens a plugin, and its log messages.
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

  // Returns the symbol's address, or null if the symbol is missing.
  template <typename T>
  const T* find(const std::string& symbol) const {
    return static_cast<const T*>(::dlsym(handle_.get(), symbol.c_str()));
  }
  bool is_open() const { return handle_ != nullptr; }

 private:
  std::unique_ptr<void, int (*)(void*)> handle_;
};

// Replaces NCCL's logger.
void log_of_host(ncclDebugLogLevel level, unsigned long flags, const char* file, int line,
                 const char* format, ...);
// Returns the lines of a level logged since the last call.
std::vector<std::string> take_log(ncclDebugLogLevel level);

}  // namespace tutti::testing
