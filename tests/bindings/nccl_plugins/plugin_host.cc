#include "tests/bindings/nccl_plugins/plugin_host.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/text.h"

namespace tutti::testing {

namespace {

struct Line {
  ncclDebugLogLevel level;
  std::string text;
};

std::mutex mutex;
std::vector<Line> lines;

}  // namespace

Library::Library(const std::string& name)
    : handle_(::dlopen(cat("bindings/nccl_plugins/", name).c_str(), RTLD_NOW | RTLD_LOCAL),
              &::dlclose) {}

void log_of_host(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format,
                 ...) {
  std::array<char, 2048> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(mutex);
  lines.push_back({level, text.data()});
}

std::vector<std::string> take_log(ncclDebugLogLevel level) {
  const std::lock_guard lock(mutex);
  std::vector<std::string> taken;
  std::vector<Line> kept;
  for (Line& line : std::exchange(lines, {})) {
    if (line.level == level) {
      taken.push_back(std::move(line.text));
    } else {
      kept.push_back(std::move(line));
    }
  }
  lines = std::move(kept);
  return taken;
}

}  // namespace tutti::testing
