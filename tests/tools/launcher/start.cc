#include "tests/tools/launcher/start.h"

#include <cstdlib>

namespace tutti::tool {

std::string launcher_path() {
  const char* path = std::getenv("LAUNCHER_MAIN");  // for runs outside Bazel
  return path != nullptr ? path : "tests/tools/launcher/launcher_main";
}

Process start_launcher(int ranks, const std::string& hosts, std::vector<std::string> command,
                       Process::Environment environment) {
  std::vector<std::string> words = {launcher_path(), std::to_string(ranks), hosts, "1"};
  words.insert(words.end(), command.begin(), command.end());
  return Process(std::move(words), std::move(environment));
}

Result launch_script(int ranks, const std::string& script, Process::Environment environment) {
  return start_launcher(ranks, "-", {"bash", "-c", script}, std::move(environment)).finish();
}

}  // namespace tutti::tool
