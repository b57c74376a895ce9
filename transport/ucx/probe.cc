#include "transport/ucx/probe.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/text.h"
#include "transport/ucx/library.h"
#include "transport/ucx/worker.h"

namespace tutti::ucx {

std::string version() { return library().get_version_string(); }

// Returns the devices. UCX only prints them, in lines like "resource 3 : md 1 dev 2 flags --
// tcp/eth0".
std::vector<std::string> devices() {
  const Worker worker;
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  library().context_print_info(worker.context(), stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  std::vector<std::string> found;
  for (const std::string& line : split(std::string(text, bytes), '\n')) {
    const size_t at = line.find(" -- ");
    if (line.find("resource") != std::string::npos && at != std::string::npos) {
      found.push_back(line.substr(line.find_first_not_of(' ', at + 4)));
    }
  }
  return found;
}

}  // namespace tutti::ucx
