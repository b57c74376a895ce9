// A minimal program with a launcher: `launcher_main N HOSTS|- PREFIX(0|1) PROGRAM ...`, and
// `agent`. LAUNCHER_MIN_RANKS in its environment is the minimum number of surviving ranks.
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "tools/launcher/agent_process.h"
#include "tools/launcher/launcher.h"

int main(int argc, char** argv) {
  using namespace tutti;
  if (argc == 2 && std::string_view(argv[1]) == "agent") return tool::run_agent();
  if (argc < 4) return 2;
  tool::LaunchOptions options;
  options.ranks = std::atoi(argv[1]);
  if (std::string_view(argv[2]) != "-") options.hosts = tool::parse_hosts(split(argv[2], ','));
  options.prefix_lines = argv[3][0] == '1';
  if (const char* least = std::getenv("LAUNCHER_MIN_RANKS")) options.min_ranks = std::atoi(least);
  options.command.assign(argv + 4, argv + argc);
  try {
    return tool::launch(options);
  } catch (const Error& error) {
    std::cerr << "tutti: " << error.what() << '\n';
    return 1;
  }
}
